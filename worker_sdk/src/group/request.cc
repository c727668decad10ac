// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/group/request.h"

#include <regroup/error.h>

#include <array>
#include <limits>
#include <span>
#include <string>

#include "rendezvous/base/clock.h"

namespace regroup {
namespace {

[[noreturn]] void refuse(const std::string& operation, const std::string& detail) {
    throw Error(Errc::invalid_argument, operation + ": " + detail);
}

std::string elements(ConstTensorView buffer) {
    return std::to_string(buffer.count) + " x " + std::string(to_string(buffer.dtype));
}

void check_device(const std::string& operation, ConstTensorView buffer, const Device& device) {
    if (buffer.device == device) {
        return;
    }
    const std::string where = elements(buffer) + " on " + to_string(buffer.device);
    refuse(operation,
           device.kind == DeviceKind::cpu
               ? "a buffer of " + where +
                     ", but this group reaches host memory only; copy it to the host, "
                     "or use the back end \"nccl\""
               : "a buffer of " + where + ", and this group's are on " + to_string(device));
}

void check_buffer(const std::string& operation, ConstTensorView buffer, const Device& device) {
    if (buffer.count == 0) {
        return;
    }
    check_device(operation, buffer, device);
    const std::size_t item = item_bytes(buffer.dtype);
    if (buffer.data == nullptr) {
        refuse(operation, "a buffer of " + elements(buffer) + " without data");
    }
    if (buffer.count > std::numeric_limits<std::size_t>::max() / item) {
        refuse(operation, "a buffer of " + elements(buffer) + " exceeds the address space");
    }
    if (reinterpret_cast<std::uintptr_t>(buffer.data) % item != 0) {
        refuse(operation, "a buffer that is not aligned to its element size of " +
                              std::to_string(item) + " bytes");
    }
}

void check_rank(const std::string& what, std::uint32_t rank, std::uint32_t world_size) {
    if (rank >= world_size) {
        refuse(what, "rank " + std::to_string(rank) + " does not exist in a world of " +
                         std::to_string(world_size));
    }
}

void check_reduction(const std::string& operation, const Reduction& reduction, DType dtype) {
    if (reduction.op > ReduceOp::bit_xor) {
        refuse(operation, "an operator that does not exist, number " +
                              std::to_string(static_cast<int>(reduction.op)));
    }
    if (is_bitwise(reduction.op) && is_floating_point(dtype)) {
        refuse(operation, std::string(to_string(reduction.op)) + " of " +
                              std::string(to_string(dtype)) + "; it is for integers");
    }
    if (reduction.premultiplied() && (reduction.op != ReduceOp::sum || !is_floating_point(dtype))) {
        refuse(operation, "a factor of " + std::to_string(reduction.factor) + " for " +
                              std::string(to_string(reduction.op)) + " of " +
                              std::string(to_string(dtype)) +
                              "; only a sum of floating-point values can have one");
    }
}

void check_rows(const std::string& operation, ConstTensorView row, ConstTensorView rows,
                std::uint32_t world_size) {
    if (rows.dtype != row.dtype || rows.count % world_size != 0 ||
        rows.count / world_size != row.count) {
        refuse(operation, elements(rows) + " are not one row of " + elements(row) +
                              " for each rank of a world of " + std::to_string(world_size));
    }
}

void check_apart(const std::string& operation, ConstTensorView input, ConstTensorView output) {
    const auto* const in = static_cast<const std::byte*>(input.data);
    const auto* const out = static_cast<const std::byte*>(output.data);
    if (input.count > 0 && in < out + output.bytes() && out < in + input.bytes()) {
        refuse(operation, "the input and the output overlap");
    }
}

void check_exchange(const std::string& operation, ConstTensorView input, ConstTensorView output,
                    std::uint32_t world_size) {
    if (input.dtype != output.dtype || input.count != output.count ||
        input.count % world_size != 0) {
        refuse(operation, "an input of " + elements(input) + " and an output of " +
                              elements(output) +
                              "; both must be the same, with one row for each rank of a world of " +
                              std::to_string(world_size));
    }
    check_apart(operation, input, output);
}

/// The input and the output of a reduction are the same or apart, and equal in size.
void check_reduced(const std::string& operation, ConstTensorView input, ConstTensorView output) {
    if (input.dtype != output.dtype || input.count != output.count) {
        refuse(operation, "an input of " + elements(input) + " and an output of " +
                              elements(output) + "; both must be the same");
    }
    if (input.data != output.data) {
        check_apart(operation, input, output);
    }
}

/// `counts` are the lengths of the rows that `rows` consists of.
void check_counts(const std::string& operation, ConstTensorView rows,
                  std::span<const std::size_t> counts, std::uint32_t world_size) {
    if (counts.size() != world_size) {
        refuse(operation, std::to_string(counts.size()) + " counts in a world of " +
                              std::to_string(world_size) + "; give one for each rank");
    }
    std::size_t left = rows.count;
    for (const std::size_t count : counts) {
        if (count > left) {
            refuse(operation, "the counts add up to more than " + elements(rows));
        }
        left -= count;
    }
    if (left != 0) {
        refuse(operation, "the counts add up to " + std::to_string(rows.count - left) +
                              ", and the buffer has " + elements(rows));
    }
}

/// `row` is the row of this rank.
void check_row(const std::string& operation, ConstTensorView row, ConstTensorView rows,
               std::size_t count) {
    if (row.dtype != rows.dtype || row.count != count) {
        refuse(operation, "a buffer of " + elements(row) + ", and the count of this rank is " +
                              std::to_string(count) + " x " + std::string(to_string(rows.dtype)));
    }
}

void check_uneven(const std::string& name, const OperationRequest& request,
                  const ProcessGroup& group) {
    const std::uint32_t rank = group.rank();
    const std::uint32_t world_size = group.world_size();
    if (request.kind == OperationKind::all_gather) {
        check_counts(name, request.output, request.counts, world_size);
        return check_row(name, request.input, request.output, request.counts[rank]);
    }
    check_counts(name, request.input, request.counts, world_size);
    if (request.kind == OperationKind::reduce_scatter) {
        return check_row(name, request.output, request.input, request.counts[rank]);
    }
    check_counts(name, request.output, request.output_counts, world_size);
    check_row(name, {nullptr, request.output_counts[rank], request.output.dtype}, request.input,
              request.counts[rank]);
    check_apart(name, request.input, request.output);
}

void check_sizes(const std::string& name, const OperationRequest& request, std::uint32_t world_size,
                 bool is_root) {
    switch (request.kind) {
        case OperationKind::all_reduce:
            return check_reduced(name, request.input, request.output);
        case OperationKind::reduce:
            return is_root ? check_reduced(name, request.input, request.output) : void();
        case OperationKind::reduce_scatter:
            return check_rows(name, request.output, request.input, world_size);
        case OperationKind::all_gather:
            return check_rows(name, request.input, request.output, world_size);
        case OperationKind::gather:
            return is_root ? check_rows(name, request.input, request.output, world_size) : void();
        case OperationKind::scatter:
            return is_root ? check_rows(name, request.output, request.input, world_size) : void();
        case OperationKind::all_to_all:
            return check_exchange(name, request.input, request.output, world_size);
        default:
            return;
    }
}

}  // namespace

const char* name_of(OperationKind kind) noexcept {
    constexpr std::array kNames{"forming the group", "all_reduce", "reduce", "reduce_scatter",
                                "broadcast",         "all_gather", "gather", "scatter",
                                "all_to_all",        "barrier",    "send",   "recv",
                                "new_group"};
    const auto number = static_cast<std::size_t>(kind);  // May be of another rank.
    return number < kNames.size() ? kNames[number] : "unknown operation";
}

bool has_root(OperationKind kind) noexcept {
    return kind == OperationKind::reduce || kind == OperationKind::broadcast ||
           kind == OperationKind::gather || kind == OperationKind::scatter;
}

bool is_reduction(OperationKind kind) noexcept {
    return kind == OperationKind::all_reduce || kind == OperationKind::reduce ||
           kind == OperationKind::reduce_scatter;
}

bool is_bitwise(ReduceOp op) noexcept {
    return op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
}

bool is_message(OperationKind kind) noexcept {
    return kind == OperationKind::send || kind == OperationKind::recv;
}

ConstTensorView OperationRequest::row() const noexcept {
    const bool is_input = kind == OperationKind::all_gather || kind == OperationKind::gather ||
                          kind == OperationKind::all_reduce || kind == OperationKind::reduce ||
                          kind == OperationKind::all_to_all || kind == OperationKind::send;
    return is_input ? input : ConstTensorView(output);
}

std::size_t OperationRequest::count(std::uint32_t world_size) const noexcept {
    if (is_uneven()) {
        const bool is_gathered = kind == OperationKind::all_gather;
        return kind == OperationKind::all_to_all ? 0 : is_gathered ? output.count : input.count;
    }
    return row().count / (kind == OperationKind::all_to_all ? world_size : 1);
}

void check(const OperationRequest& request, const ProcessGroup& group) {
    const std::string name = name_of(request.kind);
    const std::uint32_t world_size = group.world_size();
    const bool is_root = has_root(request.kind) && request.peer == group.rank();
    if (has_root(request.kind)) {
        check_rank(name + ": root", request.peer, world_size);
    }
    if (is_message(request.kind)) {
        check_rank(name, request.peer, world_size);
        if (request.peer == group.rank()) {
            refuse(name, "rank " + std::to_string(request.peer) + " itself is no peer");
        }
    }
    const bool has_one = is_message(request.kind) || request.input.data == request.output.data;
    const bool is_for_root =
        request.kind == OperationKind::gather || request.kind == OperationKind::reduce;
    // Other ranks ignore buffers that only the root uses.
    if (request.kind != OperationKind::scatter || is_root) {
        check_buffer(name + (has_one ? "" : ": input"), request.input, group.device());
    }
    if (!is_for_root || is_root) {
        check_buffer(name + (has_one ? "" : ": output"), request.output, group.device());
    }
    if (is_reduction(request.kind)) {
        check_reduction(name, request.reduction, request.input.dtype);
    }
    if (request.is_uneven()) {
        check_uneven(name, request, group);
    } else {
        check_sizes(name, request, world_size, is_root);
    }
    if (request.options.timeout && *request.options.timeout <= std::chrono::nanoseconds(0)) {
        refuse(name, "a timeout of " + format_duration(*request.options.timeout) +
                         "; give a positive one");
    }
}

void check_members(const std::vector<std::uint32_t>& ranks, std::uint32_t world_size,
                   std::string_view name) {
    const std::string what = "new_group \"" + std::string(name) + "\"";
    if (ranks.empty()) {
        refuse(what, "a group of no ranks");
    }
    std::vector<bool> is_listed(world_size);
    for (const std::uint32_t rank : ranks) {
        check_rank(what, rank, world_size);
        if (is_listed[rank]) {
            refuse(what, "rank " + std::to_string(rank) + " is listed twice");
        }
        is_listed[rank] = true;
    }
}

}  // namespace regroup
