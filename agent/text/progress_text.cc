// SPDX-License-Identifier: Apache-2.0
#include "agent/text/progress_text.h"

#include <algorithm>
#include <chrono>

#include "agent/text/names.h"
#include "rendezvous/base/printable.h"

namespace regroup::agent {

namespace {

constexpr Duration kLastMoment = std::chrono::seconds(1);

}  // namespace

std::string parting_text(const AgentCore::Parting& parting, Instant now) {
    const auto to = [&](std::uint32_t count, const char* what) {
        return "waiting for " + counted(count, "worker") + " to " + what;
    };
    std::string text = parting.ending > 0       ? to(parting.ending, "end")
                       : parting.saving > 0     ? to(parting.saving, "save and end")
                       : parting.suspending > 0 ? to(parting.suspending, "leave their round")
                       : parting.at_boundary > 0
                           ? to(parting.at_boundary, "save and end at their next step boundary")
                           : "";
    if (text.empty() || parting.kill_at == Instant::max()) {
        return text;
    }
    const Duration left = parting.kill_at - now;
    return left < kLastMoment ? "" : text + "; SIGKILL in " + format_duration(left);
}

std::string joining_text(std::span<const WorkerLook> looks, rendezvous::RoundId round,
                         std::uint32_t workers) {
    using worker_link::Phase;
    std::uint32_t started = 0;
    std::uint32_t training = 0;
    for (const WorkerLook& look : looks) {
        const bool in_round = look.round == number(round);
        started += in_round;
        training += in_round && look.phase != Phase::forming && look.phase != Phase::starting;
    }
    const std::string begin = round_name(round) + ": ";
    if (started < workers) {
        return begin + std::to_string(started) + " of " + counted(workers, "worker") +
               (workers == 1 || started != 1 ? " have" : " has") + " entered it";
    }
    return training < workers ? begin + "forming the group; " + std::to_string(training) + " of " +
                                    counted(workers, "worker") + " are ready"
                              : "";
}

std::string transfer_text(std::span<const WorkerLook> looks) {
    using worker_link::TransferKind;
    constexpr std::uint64_t kMega = 1'000'000;
    for (const TransferKind kind : {TransferKind::state, TransferKind::save, TransferKind::load}) {
        std::uint64_t total = 0;
        std::uint64_t done = 0;
        for (const WorkerLook& look : looks) {
            if (look.transfer == kind) {
                total += look.transfer_bytes;
                done += std::min(look.transfer_done, look.transfer_bytes);
            }
        }
        if (total > 0) {
            return std::string(kind == TransferKind::state  ? "state transfer: "
                               : kind == TransferKind::save ? "saving a checkpoint: "
                                                            : "loading a checkpoint: ") +
                   std::to_string(done / kMega) + " of " +
                   std::to_string((total + kMega - 1) / kMega) + " MB";
        }
    }
    return "";
}

std::string slow_start_text(Duration taken, bool has_torch) {
    return "the new processes took " + format_duration(taken) +
           " until their first output or connection; --preload=" +
           (has_torch ? "torch imports PyTorch" : "MODULES imports modules") +
           " once on each node, and starts workers from there";
}

}  // namespace regroup::agent
