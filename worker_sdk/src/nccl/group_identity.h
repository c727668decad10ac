// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/tensor_view.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/group/group_failure.h"
#include "worker_sdk/src/group/group_report.h"
#include "worker_sdk/src/nccl/communicator.h"
#include "worker_sdk/src/nccl/operation.h"

namespace regroup::nccl {

/// The constants of a group.
struct GroupIdentity {
    std::string name{};
    /// 0 for the group that `create` formed; its sub-groups count from 1, equally on all ranks.
    std::uint32_t scope = 0;
    std::uint32_t rank = 0;
    std::vector<std::uint32_t> members{};  ///< By rank: the ranks in the group of scope 0.
    Device device{};
    Duration timeout{};
    /// The scope of the Context. Its end ends the group, and it counts the group's operations.
    std::shared_ptr<RoundScope> round{};
    std::uint32_t record = 0;  ///< The group's number in the flight recorder. The lane sets it.
    std::shared_ptr<GroupReport> report{};  ///< The lane sets it, too.

    /// "rank 1 (world rank 3)", of a member by its rank in the group of scope 0.
    [[nodiscard]] std::string name_of(std::uint32_t member) const;
    /// The rank of such a member in this group.
    [[nodiscard]] std::optional<std::uint32_t> rank_of(std::uint32_t member) const;
    /// ` on cuda:0 in group "<name>"`, for errors.
    [[nodiscard]] std::string place() const;
    [[nodiscard]] Duration timeout_of(const Operation& operation) const noexcept {
        return operation.options.timeout.value_or(timeout);
    }
    /// The failure of `operation`, whose time is up; `what` says what has not happened.
    [[nodiscard]] GroupFailure expired(const Operation& operation, const std::string& what) const;
};

/// The Errc for an NCCL result.
[[nodiscard]] Errc errc_of(ncclResult_t result) noexcept;
/// The failure that NCCL reports for `operation`, which may be empty.
[[nodiscard]] GroupFailure failure_of_nccl(const CommReport& report, std::string operation);
/// Of a communicator that is gone, if nothing else is known.
[[nodiscard]] GroupFailure given_up();

}  // namespace regroup::nccl
