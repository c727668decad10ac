// SPDX-License-Identifier: Apache-2.0
//
// The profiler plugin for NCCL: it writes into the page of the process which collectives each
// communicator is in (rendezvous/worker_link/collectives_page.h). NCCL loads it if
// NCCL_PROFILER_PLUGIN names it. No error of it reaches NCCL.
#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "rendezvous/worker_link/collectives_writer.h"
#include "worker_sdk/nccl_profiler/abi.h"
#include "worker_sdk/nccl_profiler/communicator.h"
#include "worker_sdk/nccl_profiler/handle.h"
#include "worker_sdk/nccl_profiler/signature.h"

namespace regroup::nccl_profiler {
namespace {

using worker_link::GroupWriter;
using Kind = Handle::Kind;

constexpr const char* kName = "regroup";

/// Each group call, and each kernel of it, is told apart.
Handle next_group() noexcept {
    static constinit std::atomic<std::uint64_t> last{0};
    return Handle(Kind::group, 0, last.fetch_add(1, std::memory_order_relaxed) + 1);
}

Communicator* communicator(void* context) noexcept {
    return static_cast<Communicator*>(context);
}

/// NCCL pays much to tell of kernels, so the user asks for it: about 40 MB
/// of /dev/shm for each communicator and rank, a host function for each captured collective, and a
/// proxy thread that spins. Where /dev/shm is too small, NCCL has ended with a segmentation fault.
bool wants_kernels() noexcept {
    const char* const wish = std::getenv("REGROUP_NCCL_KERNELS");
    return wish != nullptr && wish[0] == '1' && wish[1] == '\0';
}

/// Asks for the fewest events that suffice: for none without a page, so that NCCL spends no time on
/// them.
int begin(void** context, int* mask, std::uint32_t events) noexcept {
    const bool has_page = GroupWriter::has_page();
    *context = has_page ? Communicator::take() : nullptr;
    *mask = has_page ? static_cast<int>(events) : 0;
    return kSuccess;
}

template <bool TellsOfChannels>
int init_early(void** context, int* mask) {
    const bool kernels = TellsOfChannels && wants_kernels();
    return begin(context, mask, collective_event | message_event | (kernels ? channel_event : 0U));
}

void identify(void* context, const char* name, std::uint64_t id, int ranks, int rank) noexcept {
    if (Communicator* const own = communicator(context)) {
        own->identify({.backend = worker_link::CollectiveBackend::nccl,
                       .id = id,
                       .size = static_cast<std::uint32_t>(ranks),
                       .rank = static_cast<std::uint32_t>(rank),
                       .name = name != nullptr ? name : "",
                       .knows_starts = wants_kernels(),
                       .knows_ends = wants_kernels()});
    }
}

// NOLINTBEGIN(readability-function-size): NCCL's arguments.
int init_of_4(void** context, int* mask, const char* name, std::uint64_t id, int /*nodes*/,
              int ranks, int rank, void* /*log*/) {
    init_early<true>(context, mask);
    identify(*context, name, id, ranks, rank);
    return kSuccess;
}

int init_of_5(void** context, std::uint64_t id, int* mask, const char* name, int /*nodes*/,
              int ranks, int rank, void* /*log*/) {
    // Only kernels need to be told when a collective is enqueued.
    begin(context, mask,
          wants_kernels() ? collective_event | message_event | channel_event
                          : call_event | message_event);
    identify(*context, name, id, ranks, rank);
    return kSuccess;
}
// NOLINTEND(readability-function-size)

/// Versions 1 to 3 name the communicator with each operation, and never its size.
template <class Operation>
void identify(Communicator& own, const Operation& operation, std::int32_t rank,
              bool tells_of_channels) noexcept {
    // The number of channels of version 3 is an upper limit: a kernel may have ended before as many
    // have.
    const char* const name = operation.communicator_name;
    own.identify({.backend = worker_link::CollectiveBackend::nccl,
                  .id = operation.communicator,
                  .rank = static_cast<std::uint32_t>(rank),
                  .name = name != nullptr ? name : "",
                  .knows_starts = tells_of_channels && wants_kernels()});
}

template <bool TellsOfChannels, class Text>
int start_early(void* context, void** handle, const EventOf1<Text>* event) {
    const Handle parent(event->head.parent);
    Communicator* const own = communicator(context);
    Handle made;
    if (event->head.type == group_event) {
        made = next_group();
    } else if (own == nullptr) {
        made = Handle();
    } else if (event->head.type == collective_event) {
        const CollectiveOf1<Text>& found = event->collective;
        identify(*own, found, event->head.rank, TellsOfChannels);
        made = own->enqueued({}, parent, signature_of(found.function, found.type, found.count),
                             kChannelsUnknown);
    } else if (event->head.type == message_event) {
        const MessageOf1<Text>& found = event->message;
        identify(*own, found, event->head.rank, TellsOfChannels);
        made =
            own->message_enqueued({}, parent, signature_of(found.function, found.type, found.count),
                                  found.peer, kChannelsUnknown);
    } else if (event->head.type == channel_event) {
        made = own->channel_started(parent);
    }
    *handle = made.pointer();
    return kSuccess;
}

Handle enqueued(Communicator& own, Handle call, Handle group, const CollectiveOf4& found) noexcept {
    return own.enqueued(call, group, signature_of(found.function, found.type, found.count),
                        found.channels);
}

Handle enqueued(Communicator& own, Handle call, Handle group, const MessageOf4& found) noexcept {
    return own.message_enqueued(call, group, signature_of(found.function, found.type, found.count),
                                found.peer, found.channels);
}

int start_of_4(void* context, void** handle, const EventOf4* event) {
    const Handle parent(event->head.parent);
    Communicator* const own = communicator(context);
    Handle made;
    if (event->head.type == group_event) {
        made = next_group();
    } else if (own == nullptr) {
        made = Handle();
    } else if (event->head.type == collective_event) {
        made = enqueued(*own, {}, parent, event->collective);
    } else if (event->head.type == message_event) {
        made = enqueued(*own, {}, parent, event->message);
    } else if (event->head.type == channel_event) {
        made = own->channel_started(parent);
    }
    *handle = made.pointer();
    return kSuccess;
}

int start_of_5(void* context, void** handle, const EventOf5* event) {
    const Handle parent(event->head.parent);
    Communicator* const own = communicator(context);
    Handle made;
    switch (event->head.type) {
        case group_event:
        case group_call_event:
            *handle = next_group().pointer();
            return kSuccess;
        default:
            break;
    }
    if (own == nullptr) {
        *handle = nullptr;
        return kSuccess;
    }
    switch (event->head.type) {
        case call_event: {
            const CallOf5& call = event->call;
            made = own->called(parent, call.is_captured,
                               signature_of(call.function, call.type, call.count));
            break;
        }
        case message_call_event:
            made = own->message_called(parent, event->message_call.is_captured);
            break;
        case collective_event:
            made =
                enqueued(*own, parent, Handle(event->collective.group), event->collective.common);
            break;
        case message_event:
            made = enqueued(*own, parent, Handle(event->message.group), event->message.common);
            break;
        case channel_event:
            made = own->channel_started(parent);
            break;
        default:
            break;
    }
    *handle = made.pointer();
    return kSuccess;
}

int stop_event(void* pointer) {
    const Handle handle(pointer);
    if (handle.kind() == Kind::channel) {
        if (Communicator* const own = Communicator::at(handle.communicator())) {
            own->channel_ended(handle);
        }
    }
    return kSuccess;
}

int record_state(void* /*handle*/, int /*state*/, void* /*arguments*/) {
    return kSuccess;
}

int finalize(void* context) {
    if (Communicator* const own = communicator(context)) {
        own->release();
    }
    return kSuccess;
}

template <class Init, class Event>
constexpr Table<Init, Event> table(Init* init, int (*start)(void*, void**, const Event*)) noexcept {
    return {kName, init, start, stop_event, record_state, finalize};
}

}  // namespace
}  // namespace regroup::nccl_profiler

namespace abi = regroup::nccl_profiler;

// NOLINTBEGIN(readability-identifier-naming): NCCL's names.
extern "C" {
#define REGROUP_EXPORTED extern const __attribute__((visibility("default")))
REGROUP_EXPORTED abi::Table<abi::InitOf1, abi::Early> ncclProfiler_v1;
REGROUP_EXPORTED abi::Table<abi::InitOf1, abi::Textual> ncclProfiler_v2;
REGROUP_EXPORTED abi::Table<abi::InitOf1, abi::Textual> ncclProfiler_v3;
REGROUP_EXPORTED abi::Table<abi::InitOf4, abi::EventOf4> ncclProfiler_v4;
REGROUP_EXPORTED abi::Table<abi::InitOf5, abi::EventOf5> ncclProfiler_v5;
REGROUP_EXPORTED abi::Table<abi::InitOf5, abi::EventOf5> ncclProfiler_v6;
#undef REGROUP_EXPORTED
}

constinit const abi::Table<abi::InitOf1, abi::Early> ncclProfiler_v1 =
    abi::table(abi::init_early<false>, abi::start_early<false, std::uint8_t>);
constinit const abi::Table<abi::InitOf1, abi::Textual> ncclProfiler_v2 =
    abi::table(abi::init_early<false>, abi::start_early<false, const char*>);
constinit const abi::Table<abi::InitOf1, abi::Textual> ncclProfiler_v3 =
    abi::table(abi::init_early<true>, abi::start_early<true, const char*>);
constinit const abi::Table<abi::InitOf4, abi::EventOf4> ncclProfiler_v4 =
    abi::table(abi::init_of_4, abi::start_of_4);
constinit const abi::Table<abi::InitOf5, abi::EventOf5> ncclProfiler_v5 =
    abi::table(abi::init_of_5, abi::start_of_5);
constinit const abi::Table<abi::InitOf5, abi::EventOf5> ncclProfiler_v6 =
    abi::table(abi::init_of_5, abi::start_of_5);
// NOLINTEND(readability-identifier-naming)
