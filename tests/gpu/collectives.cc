// SPDX-License-Identifier: Apache-2.0
// Every collective with every dtype against results that the host computes.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "tests/gpu/checks.h"
#include "tests/gpu/device_values.h"

namespace regroup::gpu {
namespace {

constexpr std::size_t kReducedElements = 1027;
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max,
                             ReduceOp::avg};

/// Rank r's value i: 1, 2 or 4, so that every result is exact in every type, except averages of
/// integers over two ranks, which are truncated.
double value_of(std::uint32_t rank, std::size_t i) {
    return static_cast<double>(1U << ((rank + i) % 3));
}

template <class T>
T typed(double value) {
    if constexpr (std::is_arithmetic_v<T>) {
        return static_cast<T>(value);
    } else {
        return T(static_cast<float>(value));
    }
}

template <class T>
std::vector<T> values_of(std::uint32_t rank, std::size_t first, std::size_t count) {
    std::vector<T> values;
    for (std::size_t i = first; i < first + count; ++i) {
        values.push_back(typed<T>(value_of(rank, i)));
    }
    return values;
}

double combine(ReduceOp op, double a, double b) {
    switch (op) {
        case ReduceOp::product:
            return a * b;
        case ReduceOp::min:
            return std::min(a, b);
        case ReduceOp::max:
            return std::max(a, b);
        default:
            return a + b;
    }
}

template <class T>
std::vector<T> reduced(ReduceOp op, std::uint32_t world_size, std::size_t first,
                       std::size_t count) {
    std::vector<T> values;
    for (std::size_t i = first; i < first + count; ++i) {
        double result = value_of(0, i);
        for (std::uint32_t rank = 1; rank < world_size; ++rank) {
            result = combine(op, result, value_of(rank, i));
        }
        values.push_back(typed<T>(op == ReduceOp::avg ? result / world_size : result));
    }
    return values;
}

template <class T>
std::vector<T> rows_of_all(std::uint32_t world_size) {
    std::vector<T> rows;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        const std::vector<T> row = values_of<T>(rank, 0, kReducedElements);
        rows.insert(rows.end(), row.begin(), row.end());
    }
    return rows;
}

template <class T>
void check_reductions(ProcessGroup& group) {
    const std::uint32_t rank = group.rank();
    const std::uint32_t size = group.world_size();
    for (const ReduceOp op : kOps) {
        const std::string name(to_string(op));
        DeviceValues<T> all(values_of<T>(rank, 0, kReducedElements), group.device());
        group.all_reduce(all.view(), op).wait();
        require(all.get() == reduced<T>(op, size, 0, kReducedElements), "all_reduce " + name);
        DeviceValues<T> one(values_of<T>(rank, 0, kReducedElements), group.device());
        group.reduce(one.view(), op, 1).wait();
        require(one.get() == (rank == 1 ? reduced<T>(op, size, 0, kReducedElements)
                                        : values_of<T>(rank, 0, kReducedElements)),
                "reduce " + name);
        DeviceValues<T> rows(values_of<T>(rank, 0, size * kReducedElements), group.device());
        DeviceValues<T> row(kReducedElements, group.device());
        group.reduce_scatter(rows.view(), row.view(), op).wait();
        require(row.get() == reduced<T>(op, size, rank * kReducedElements, kReducedElements),
                "reduce_scatter " + name);
    }
}

template <class T>
void check_exchanges(ProcessGroup& group) {
    const std::uint32_t rank = group.rank();
    const std::uint32_t size = group.world_size();
    const std::vector<T> own = values_of<T>(rank, 0, kReducedElements);
    DeviceValues<T> mine(own, group.device());
    DeviceValues<T> all(size * kReducedElements, group.device());
    group.all_gather(mine.view(), all.view()).wait();
    require(all.get() == rows_of_all<T>(size), "all_gather");
    DeviceValues<T> at_root(size * kReducedElements, group.device());
    group.gather(mine.view(), at_root.view(), 1).wait();
    require(rank != 1 || at_root.get() == rows_of_all<T>(size), "gather");
    DeviceValues<T> back(kReducedElements, group.device());
    group.scatter(all.view(), back.view(), 0).wait();
    require(back.get() == own, "scatter");
    group.broadcast(back.view(), 1).wait();
    require(back.get() == values_of<T>(1, 0, kReducedElements), "broadcast");
    DeviceValues<T> sent(values_of<T>(rank, 0, size * kReducedElements), group.device());
    group.all_to_all(sent.view(), all.view()).wait();
    std::vector<T> expected;
    for (std::uint32_t other = 0; other < size; ++other) {
        const std::vector<T> row = values_of<T>(other, rank * kReducedElements, kReducedElements);
        expected.insert(expected.end(), row.begin(), row.end());
    }
    require(all.get() == expected, "all_to_all");
}

template <class T>
bool check_type(const Context& context, ProcessGroup& group, bool reduces) {
    const std::string name(to_string(DTypeOf<T>::value));
    bool good = report(context, "exchanges of " + name, [&] { check_exchanges<T>(group); });
    if (reduces) {
        good &= report(context, "reductions of " + name, [&] { check_reductions<T>(group); });
    }
    return good;
}

}  // namespace

bool check_collectives(const Context& context) {
    std::unique_ptr<ProcessGroup> group;
    if (!report(context, "form a group", [&] {
            group = ProcessGroup::create("nccl", context, {.timeout = std::chrono::seconds(60)});
            cuda::set_device(group->device());
            group->barrier().wait();
        })) {
        return false;
    }
    int major = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, group->device().index),
          "cudaDeviceGetAttribute");
    bool good = check_type<float>(context, *group, true);
    good &= check_type<double>(context, *group, true);
    good &= check_type<std::int32_t>(context, *group, true);
    good &= check_type<std::int64_t>(context, *group, true);
    good &= check_type<std::uint8_t>(context, *group, true);
    good &= check_type<std::int8_t>(context, *group, true);
    good &= check_type<std::uint32_t>(context, *group, true);
    good &= check_type<std::uint64_t>(context, *group, true);
    good &= check_type<float16>(context, *group, true);
    good &= check_type<bfloat16>(context, *group, true);
    good &= check_type<float8_e4m3fn>(context, *group, major >= 9);
    good &= check_type<float8_e5m2>(context, *group, major >= 9);
    return good;
}

}  // namespace regroup::gpu
