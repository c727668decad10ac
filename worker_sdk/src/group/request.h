// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace regroup {

enum class OperationKind : std::uint8_t {
    form,  ///< Internal: an exchange while a group forms.
    all_reduce,
    reduce,
    reduce_scatter,
    broadcast,
    all_gather,
    gather,
    scatter,
    all_to_all,
    barrier,
    send,
    recv,
    new_group,
};

/// "all_reduce"; a literal.
[[nodiscard]] const char* name_of(OperationKind kind) noexcept;
[[nodiscard]] bool has_root(OperationKind kind) noexcept;
[[nodiscard]] bool is_reduction(OperationKind kind) noexcept;
/// True for send and recv, false for collectives.
[[nodiscard]] bool is_message(OperationKind kind) noexcept;
[[nodiscard]] bool is_bitwise(ReduceOp op) noexcept;

/// One call of an operation, as every back end gets it.
struct OperationRequest {
    OperationKind kind = OperationKind::barrier;
    ConstTensorView input{};  ///< Empty for barrier and recv; the output, for operations in place.
    TensorView output{};      ///< Empty for barrier and send.
    Reduction reduction = ReduceOp::sum;
    std::uint32_t peer = 0;  ///< The root, where there is one. Messages: the other rank.
    std::uint32_t tag = 0;   ///< Messages only.
    OperationOptions options{};
    /// The elements of each row, if the caller gave them: of the input of reduce_scatter and
    /// all_to_all, of the output of all_gather.
    std::vector<std::size_t> counts{};
    std::vector<std::size_t> output_counts{};  ///< all_to_all with `counts` only.

    /// The caller gave the lengths of the rows.
    [[nodiscard]] bool is_uneven() const noexcept {
        return !counts.empty() || !output_counts.empty();
    }
    /// The buffer that has one row, where there are rows; for all_to_all all of them.
    [[nodiscard]] ConstTensorView row() const noexcept;
    /// Elements of one row; of all rows, or 0 for all_to_all, if the rows are uneven.
    [[nodiscard]] std::size_t count(std::uint32_t world_size) const noexcept;
};

/// Throws Error `invalid_argument` for a request that `group` cannot carry out: a rank that does
/// not exist, buffers elsewhere, misaligned or of sizes that do not fit, an invalid reduction.
void check(const OperationRequest& request, const ProcessGroup& group);

/// Throws Error `invalid_argument` unless `ranks` holds one rank at least, each existing and listed
/// once.
void check_members(const std::vector<std::uint32_t>& ranks, std::uint32_t world_size,
                   std::string_view name);

}  // namespace regroup
