// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/group_identity.h"

#include <regroup/process_group.h>

#include <algorithm>
#include <utility>

#include "rendezvous/base/result.h"

namespace regroup::nccl {

std::optional<std::uint32_t> GroupIdentity::rank_of(std::uint32_t member) const {
    const auto found = std::ranges::find(members, member);
    return found == members.end()
               ? std::nullopt
               : std::optional(static_cast<std::uint32_t>(found - members.begin()));
}

std::string GroupIdentity::name_of(std::uint32_t member) const {
    const std::uint32_t index = rank_of(member).value();
    const std::string text = "rank " + std::to_string(index);
    return index == member ? text : text + " (world rank " + std::to_string(member) + ")";
}

std::string GroupIdentity::place() const {
    return " on " + to_string(device) +
           (name == ProcessGroupOptions().name ? "" : " in group \"" + name + "\"");
}

GroupFailure GroupIdentity::expired(const Operation& operation, const std::string& what) const {
    const Duration limit = timeout_of(operation);
    GroupFailure failure{Errc::deadline_exceeded, what + " within " + format_duration(limit),
                         describe(operation.signature)};
    if (is_message(operation)) {
        failure.cause += ": the other rank has not called it, or a stream holds it up";
    } else {
        // Unless the other ranks say otherwise.
        failure.cause += ": all ranks have called it, so a stream holds it up";
        failure.expired = {.number = operation.signature.number, .limit = limit};
    }
    return failure;
}

Errc errc_of(ncclResult_t result) noexcept {
    switch (result) {
        case ncclRemoteError:
            return Errc::disconnected;
        case ncclInvalidArgument:
        case ncclInvalidUsage:
            return Errc::invalid_argument;
        default:
            return Errc::system;
    }
}

GroupFailure failure_of_nccl(const CommReport& report, std::string operation) {
    return {.code = errc_of(report.result),
            .cause = "NCCL: " + report.text,
            .operation = std::move(operation),
            .may_be_peer = report.result == ncclRemoteError || report.result == ncclSystemError};
}

GroupFailure given_up() {
    return {Errc::fenced, "the group was given up", {}};
}

}  // namespace regroup::nccl
