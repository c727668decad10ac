// SPDX-License-Identifier: Apache-2.0
#include "tests/support/stand_in_nccl/profiler.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <string_view>

#include "worker_sdk/nccl_profiler/abi.h"

namespace stand_in_nccl {
namespace {

using namespace regroup::nccl_profiler;

constexpr int kNewest = 6;
constexpr std::uint8_t kChannels = 2;
constexpr std::uint32_t kAnyEvent = ~0U;
constexpr std::array kTypeNames{"ncclInt8",    "Unknown",      "ncclInt32",      "ncclUint32",
                                "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
                                "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
/// By the numbers of version 1.
constexpr std::array kFunctionNames{"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                    "AllReduce", "SendRecv", "Send",      "Recv"};

/// The tables of all versions, as one that takes any event.
struct Plugin {
    void* library = nullptr;
    int version = 0;
    const void* table = nullptr;
    int users = 0;
    int mask = 0;

    template <class Init, class Event>
    [[nodiscard]] const Table<Init, Event>& as() const {
        return *static_cast<const Table<Init, Event>*>(table);
    }
    [[nodiscard]] bool wants(std::uint32_t events) const {
        return (static_cast<std::uint32_t>(mask) & events) != 0;
    }
};

std::mutex plugin_mutex;
Plugin plugin;  // Changed under plugin_mutex, while no communicator uses it.

const char* type_name(std::uint32_t dtype) {
    return dtype < kTypeNames.size() ? kTypeNames[dtype] : "Unknown";
}

std::uint8_t function_number(std::string_view name) {
    const auto found = std::ranges::find(kFunctionNames, name);
    return static_cast<std::uint8_t>(found - kFunctionNames.begin());
}

void load() {
    const char* const name = std::getenv("NCCL_PROFILER_PLUGIN");
    if (name == nullptr || std::string_view(name) == "none") {
        return;
    }
    plugin.library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (plugin.library == nullptr) {
        return;
    }
    const char* const limit = std::getenv("STAND_IN_NCCL_PROFILER_VERSION");
    plugin.version = limit != nullptr ? std::atoi(limit) : kNewest;
    for (; plugin.version > 0; --plugin.version) {
        const std::string symbol = "ncclProfiler_v" + std::to_string(plugin.version);
        plugin.table = ::dlsym(plugin.library, symbol.c_str());
        if (plugin.table != nullptr) {
            return;
        }
    }
}

void unload() {
    if (plugin.library != nullptr) {
        ::dlclose(plugin.library);
    }
    plugin = {};
}

template <class Init, class Event>
void* start_event(void* context, const Event& event) {
    void* handle = nullptr;
    plugin.as<Init, Event>().start_event(context, &handle, &event);
    return handle;
}

void* start(void* context, const Early& event) {
    return start_event<InitOf1>(context, event);
}
void* start(void* context, const Textual& event) {
    return start_event<InitOf1>(context, event);
}
void* start(void* context, const EventOf4& event) {
    return start_event<InitOf4>(context, event);
}
void* start(void* context, const EventOf5& event) {
    return start_event<InitOf5>(context, event);
}

/// All versions have these two, in the same places.
void stop(void* handle) {
    plugin.as<InitOf1, Early>().stop_event(handle);
}
void record(void* handle, int state) {
    std::uint64_t arguments = 0;
    plugin.as<InitOf1, Early>().record_state(handle, state, &arguments);
}

/// A zeroed event of one version, with its head.
template <class Event>
Event event_of(EventType type, void* parent, int rank) {
    Event event{};
    std::memset(static_cast<void*>(&event), 0, sizeof event);
    event.head.type = static_cast<decltype(event.head.type)>(type);
    event.head.parent = parent;
    event.head.rank = rank;
    return event;
}

/// An event that has a head only, of the version of the plugin.
void* start_bare(void* context, EventType type, void* parent, int rank) {
    switch (plugin.version) {
        case 1:
            return start(context, event_of<Early>(type, parent, rank));
        case 2:
        case 3:
            return start(context, event_of<Textual>(type, parent, rank));
        case 4:
            return start(context, event_of<EventOf4>(type, parent, rank));
        default:
            return start(context, event_of<EventOf5>(type, parent, rank));
    }
}

/// Version 1 has numbers.
void set(std::uint8_t& field, const char* /*text*/, std::uint8_t number) {
    field = number;
}
void set(const char*& field, const char* text, std::uint8_t /*number*/) {
    field = text;
}

template <class Fields>
void fill(Fields& fields, const ProfiledOperation& operation) {
    set(fields.function, operation.function, function_number(operation.function));
    set(fields.type, type_name(operation.dtype), static_cast<std::uint8_t>(operation.dtype));
    fields.count = operation.count;
}

template <class Event>
void* start_early_task(void* context, void* group, int rank, const char* name, std::uint64_t id,
                       const ProfiledOperation& operation) {
    auto event =
        event_of<Event>(operation.is_message ? message_event : collective_event, group, rank);
    const auto fill_in = [&](auto& fields) {
        fill(fields, operation);
        fields.communicator_name = name;
        fields.communicator = id;
    };
    if (operation.is_message) {
        fill_in(event.message);
        event.message.peer = operation.peer;
    } else {
        fill_in(event.collective);
    }
    return start(context, event);
}

void* start_task_of_4(void* context, void* group, int rank, const ProfiledOperation& operation) {
    auto event =
        event_of<EventOf4>(operation.is_message ? message_event : collective_event, group, rank);
    if (operation.is_message) {
        fill(event.message, operation);
        event.message.peer = operation.peer;
        event.message.channels = kChannels;
    } else {
        fill(event.collective, operation);
        event.collective.channels = kChannels;
    }
    return start(context, event);
}

void* start_task_of_5(void* context, void* group, int rank, const ProfiledOperation& operation) {
    auto event = event_of<EventOf5>(operation.is_message ? message_event : collective_event,
                                    operation.call, rank);
    if (operation.is_message) {
        fill(event.message.common, operation);
        event.message.common.peer = operation.peer;
        event.message.common.channels = kChannels;
        event.message.group = group;
    } else {
        fill(event.collective.common, operation);
        event.collective.common.channels = kChannels;
        event.collective.group = group;
    }
    return start(context, event);
}

}  // namespace

void Profiler::begin(const std::string& name, std::uint64_t id, int ranks, int rank) {
    const std::lock_guard lock(plugin_mutex);
    if (plugin.users++ == 0) {
        load();
    }
    name_ = name;
    id_ = id;
    rank_ = rank;
    has_begun_ = true;
    if (plugin.version >= 5) {
        plugin.as<InitOf5, EventOf5>().init(&context_, id, &plugin.mask, name_.c_str(), 1, ranks,
                                            rank, nullptr);
    } else if (plugin.version == 4) {
        plugin.as<InitOf4, EventOf4>().init(&context_, &plugin.mask, name_.c_str(), id, 1, ranks,
                                            rank, nullptr);
    } else if (plugin.version > 0) {
        plugin.as<InitOf1, Early>().init(&context_, &plugin.mask);
    }
}

void Profiler::end() {
    const std::lock_guard lock(plugin_mutex);
    if (!has_begun_.exchange(false)) {
        return;
    }
    if (plugin.version > 0) {
        plugin.as<InitOf1, Early>().finalize(context_);
    }
    context_ = nullptr;
    if (--plugin.users == 0) {
        unload();
    }
}

void* Profiler::start_group(bool /*is_captured*/) const {
    const bool tells = has_begun_ && plugin.version >= 5 && plugin.wants(kAnyEvent);
    return tells ? start_bare(context_, group_call_event, nullptr, 0) : nullptr;
}

bool Profiler::tells_of_replays() const {
    return has_begun_ && plugin.version >= 3 && plugin.wants(channel_event);
}

void Profiler::stop_group(void* group) const {
    if (group != nullptr) {
        stop(group);
    }
}

void* Profiler::call(void* group, const ProfiledOperation& operation, bool is_captured) const {
    const std::uint32_t wanted =
        operation.is_message ? message_call_event | message_event : call_event | collective_event;
    if (!has_begun_ || plugin.version < 5 || !plugin.wants(wanted | channel_event)) {
        return nullptr;
    }
    auto event =
        event_of<EventOf5>(operation.is_message ? message_call_event : call_event, group, 0);
    if (operation.is_message) {
        fill(event.message_call, operation);
        event.message_call.is_captured = is_captured;
    } else {
        fill(event.call, operation);
        event.call.is_captured = is_captured;
    }
    void* const handle = start(context_, event);
    if (handle != nullptr) {
        stop(handle);
    }
    return handle;
}

ProfiledKernel Profiler::enqueue(const std::vector<ProfiledOperation>& operations) const {
    ProfiledKernel kernel;
    const std::uint32_t any = group_event | collective_event | message_event | channel_event;
    if (!has_begun_ || !plugin.wants(any)) {
        return kernel;
    }
    std::multimap<std::size_t, const ProfiledOperation*> sorted;
    for (const ProfiledOperation& operation : operations) {
        sorted.emplace(operation.is_message ? SIZE_MAX : SIZE_MAX - 1 - operation.count,
                       &operation);
    }
    void* const group = start_bare(context_, group_event, nullptr, 0);
    for (const auto& [order, found] : sorted) {
        const ProfiledOperation& operation = *found;
        const std::uint32_t wanted =
            operation.is_message && plugin.version > 2 ? message_event : collective_event;
        if (!plugin.wants(wanted | channel_event)) {
            continue;
        }
        void* task = nullptr;
        if (plugin.version < 5 && group == nullptr) {
            // NCCL tells of no operation then.
        } else if (plugin.version == 1) {
            task = start_early_task<Early>(context_, group, rank_, name_.c_str(), id_, operation);
        } else if (plugin.version <= 3) {
            task = start_early_task<Textual>(context_, group, rank_, name_.c_str(), id_, operation);
        } else if (plugin.version == 4) {
            task = start_task_of_4(context_, group, rank_, operation);
        } else {
            task = start_task_of_5(context_, group, rank_, operation);
        }
        const bool is_to_itself = operation.is_message && operation.peer == rank_;
        if (!is_to_itself) {
            kernel.tasks.push_back(task);
        }
        if (task != nullptr) {
            stop(task);
        }
    }
    if (group != nullptr) {
        stop(group);
    }
    return kernel;
}

void Profiler::begin_kernel(ProfiledKernel& kernel) const {
    if (!has_begun_ || plugin.version < 3 || !plugin.wants(channel_event)) {
        return;
    }
    for (void* const task : kernel.tasks) {
        for (int channel = 0; channel < kChannels; ++channel) {
            kernel.channels.push_back(start_bare(context_, channel_event, task, 0));
        }
    }
}

void Profiler::end_kernel(const ProfiledKernel& kernel) const {
    constexpr int kChannelStopped = 22;
    for (void* const channel : kernel.channels) {
        if (channel != nullptr) {
            if (plugin.version >= 4) {
                record(channel, kChannelStopped);
            }
            stop(channel);
        }
    }
}

}  // namespace stand_in_nccl
