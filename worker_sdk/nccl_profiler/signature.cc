// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/nccl_profiler/signature.h"

#include <array>
#include <cstring>

namespace regroup::nccl_profiler {

namespace {

using worker_link::CollectiveKind;
using worker_link::CollectiveSignature;
using worker_link::ElementType;

template <class Value>
struct Named {
    const char* name;
    Value value;
};

// The most frequent first.
constexpr std::array kFunctions{
    Named{"AllReduce", CollectiveKind::all_reduce},
    Named{"AllGather", CollectiveKind::all_gather},
    Named{"ReduceScatter", CollectiveKind::reduce_scatter},
    Named{"Broadcast", CollectiveKind::broadcast},
    Named{"Send", CollectiveKind::send},
    Named{"Recv", CollectiveKind::receive},
    Named{"Reduce", CollectiveKind::reduce},
    Named{"AlltoAll", CollectiveKind::all_to_all},
    Named{"Gather", CollectiveKind::gather},
    Named{"Scatter", CollectiveKind::scatter},
};

constexpr std::array kTypes{
    Named{"ncclFloat32", ElementType::float32},
    Named{"ncclBfloat16", ElementType::bfloat16},
    Named{"ncclFloat16", ElementType::float16},
    Named{"ncclInt8", ElementType::int8},
    Named{"ncclUint8", ElementType::uint8},
    Named{"ncclInt32", ElementType::int32},
    Named{"ncclInt64", ElementType::int64},
    Named{"ncclFloat64", ElementType::float64},
    Named{"ncclUint32", ElementType::uint32},
    Named{"ncclUint64", ElementType::uint64},
    Named{"ncclFloat8e4m3", ElementType::float8_e4m3},
    Named{"ncclFloat8e5m2", ElementType::float8_e5m2},
};

constexpr std::array kFunctionNumbers{
    CollectiveKind::broadcast,      CollectiveKind::reduce,     CollectiveKind::all_gather,
    CollectiveKind::reduce_scatter, CollectiveKind::all_reduce, CollectiveKind::other,
    CollectiveKind::send,           CollectiveKind::receive,
};

constexpr std::array kTypeNumbers{
    ElementType::int8,    ElementType::uint8,    ElementType::int32,       ElementType::uint32,
    ElementType::int64,   ElementType::uint64,   ElementType::float16,     ElementType::float32,
    ElementType::float64, ElementType::bfloat16, ElementType::float8_e4m3, ElementType::float8_e5m2,
};

template <class Value, std::size_t Size>
Value find(const std::array<Named<Value>, Size>& table, const char* name, Value otherwise) {
    if (name != nullptr) {
        for (const Named<Value>& entry : table) {
            if (std::strcmp(entry.name, name) == 0) {
                return entry.value;
            }
        }
    }
    return otherwise;
}

template <class Value, std::size_t Size>
Value find(const std::array<Value, Size>& table, std::uint8_t number, Value otherwise) {
    return number < Size ? table[number] : otherwise;
}

}  // namespace

CollectiveSignature signature_of(const char* function, const char* type,
                                 std::size_t count) noexcept {
    return {find(kFunctions, function, CollectiveKind::other),
            find(kTypes, type, ElementType::unknown), count};
}

CollectiveSignature signature_of(std::uint8_t function, std::uint8_t type,
                                 std::size_t count) noexcept {
    return {find(kFunctionNumbers, function, CollectiveKind::other),
            find(kTypeNumbers, type, ElementType::unknown), count};
}

}  // namespace regroup::nccl_profiler
