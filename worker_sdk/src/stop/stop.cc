// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/stop.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>

#include "rendezvous/base/printable.h"
#include "worker_sdk/src/link/process_link.h"
#include "worker_sdk/src/link/sigterm.h"
#include "worker_sdk/src/stop/stop_agreement.h"

namespace regroup {
namespace {

using stopping::StopAgreement;

/// For the answers of all ranks, which their own threads give.
constexpr Duration kAnswerLimit = std::chrono::seconds(10);
/// How long a process that ends tries to tell the others.
constexpr Duration kEndLimit = std::chrono::seconds(2);

/// The agreement of this process. Never destroyed: it lasts until the process ends.
std::atomic<StopAgreement*> only_agreement = nullptr;

void end_at_exit() {
    only_agreement.load()->end_with_process(kEndLimit);
}

/// Without a launcher that serves the store, rank 0 does. PyTorch, or another Context of this
/// program, may do so already, at the same port: then this process is one more client.
void share_served_store(Context& context) {
    if (context.agent_store || context.rank != 0 || context.world_size == 1) {
        return;
    }
    try {
        static_cast<void>(context.store());
    } catch (const Error& error) {
        if (error.code() != Errc::system) {
            throw;
        }
        context.use_store(
            connect_store(context.master_addr, context.master_port, context.store_timeout));
    }
}

StopAgreement* begin(Context context) {
    share_served_store(context);
    const auto link = link::process_link();
    StopAgreement::Hooks hooks;
    hooks.is_wanted = [link, round = context.round] { return link && link->pause_wanted(round); };
    hooks.end_by_signal = [rank = context.rank](const std::string& why) {
        std::fprintf(stderr, "regroup: rank %u ends by SIGTERM: %s\n", rank,
                     printable(why).c_str());
        std::fflush(stderr);
        link::deliver_sigterm();
    };
    hooks.on_stop = [link] {
        if (link) {
            link->page().stopped.store(1);
        }
    };
    auto agreement = std::make_unique<StopAgreement>(context, std::move(hooks), kAnswerLimit);
    // Never destroyed either: a scheduler may send the signal once more while the process ends.
    const int bell = agreement->signal_bell();
    static const auto* const put_off =
        link ? new link::SigtermPutOff(link->put_off_sigterm(bell))
             : new link::SigtermPutOff(link::SigtermPutOff::kNoAgent, bell);
    static_cast<void>(put_off);
    if (link) {
        link->declare_stops(agreement->bell());
    }
    return agreement.release();
}

StopAgreement& agreement_of(const Context* context) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (StopAgreement* const known = only_agreement.load()) {
        return *known;
    }
    StopAgreement* const begun = begin(context != nullptr ? *context : Context::from_environment());
    only_agreement = begun;
    std::atexit(end_at_exit);
    return *begun;
}

}  // namespace

bool stop_requested(std::uint64_t step) {
    StopAgreement* const known = only_agreement.load(std::memory_order_acquire);
    return (known != nullptr ? *known : agreement_of(nullptr)).requested(step);
}

bool stop_requested(std::uint64_t step, const Context& context) {
    StopAgreement* const known = only_agreement.load(std::memory_order_acquire);
    return (known != nullptr ? *known : agreement_of(&context)).requested(step);
}

}  // namespace regroup
