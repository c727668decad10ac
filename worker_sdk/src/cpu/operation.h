// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/cpu/wire.h"
#include "worker_sdk/src/group/group_failure.h"
#include "worker_sdk/src/group/request.h"
#include "worker_sdk/src/group/rows.h"
#include "worker_sdk/src/group/work.h"

namespace regroup::cpu {

/// One call of the group's user, on its way through the helper thread.
struct Operation {
    Signature signature{};
    TensorView buffer{};      ///< The output; for send the data, which stays unchanged.
    ConstTensorView input{};  ///< For operations with a separate input.
    double factor = 1.0;      ///< Multiplies this rank's values before a reduction.
    /// The elements of each row, if the rows are uneven: see OperationRequest.
    std::vector<std::size_t> counts{};
    std::vector<std::size_t> output_counts{};
    Duration limit{};
    Instant issued_at{};
    std::uint64_t record = 0;  ///< The entry of the flight recorder.
    std::uint64_t report = 0;  ///< The number in the GroupReport.
    bool is_large = false;     ///< Worth waking the executor's thread; set when it is posted.
    std::shared_ptr<Work::State> work{};

    /// `data`, of which `counts` are the lengths of the rows.
    [[nodiscard]] Rows rows(const void* data = nullptr) const {
        return {data, item_bytes(signature.dtype), signature.count, counts};
    }
};

[[nodiscard]] inline bool is_message(const Operation& operation) noexcept {
    return is_message(operation.signature.kind);
}

/// Converts the request of rank `rank` in a group of `world_size` ranks, whose operations have
/// `limit` if they have none of their own.
[[nodiscard]] Operation operation_of(const OperationRequest& request, std::uint32_t rank,
                                     std::uint32_t world_size, Duration limit);

/// The failure of an all_to_all in which `sender` gives a row of `sent` elements for `receiver`,
/// which expects `expected`.
[[nodiscard]] GroupFailure rows_disagree(const std::string& sender, std::size_t sent,
                                         const std::string& receiver, std::size_t expected,
                                         DType dtype);

/// Copies the input of a reduction into its output, and multiplies the values of an all_reduce by
/// its factor. Afterwards the reduction is in place and has no such factor.
void move_into_place(Operation& operation);

}  // namespace regroup::cpu
