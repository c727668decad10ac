// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/mpi/datatype.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <type_traits>

#include "worker_sdk/mpi/arguments.h"

namespace regroup::mpi {
namespace {

enum class Domain : std::uint8_t { values, logic, bits };

struct Op {
    const char* name;
    Domain domain;
    ReduceOp reduce;  ///< The logic of 0 and 1 is that of their bits.
};

/// In the order of mpi.h, whose first is 1.
constexpr std::array kOps = {
    Op{"MPI_SUM", Domain::values, ReduceOp::sum},
    Op{"MPI_PROD", Domain::values, ReduceOp::product},
    Op{"MPI_MIN", Domain::values, ReduceOp::min},
    Op{"MPI_MAX", Domain::values, ReduceOp::max},
    Op{"MPI_LAND", Domain::logic, ReduceOp::bit_and},
    Op{"MPI_LOR", Domain::logic, ReduceOp::bit_or},
    Op{"MPI_LXOR", Domain::logic, ReduceOp::bit_xor},
    Op{"MPI_BAND", Domain::bits, ReduceOp::bit_and},
    Op{"MPI_BOR", Domain::bits, ReduceOp::bit_or},
    Op{"MPI_BXOR", Domain::bits, ReduceOp::bit_xor},
};

const Op& op_of(MPI_Op op) {
    const auto number = reinterpret_cast<std::uintptr_t>(op);
    if (number == 0 || number > kOps.size()) {
        throw CallError(MPI_ERR_OP, "the operation is not defined in mpi.h");
    }
    return kOps[number - 1];
}

template <class Integer>
Integer combined(const Op& op, Integer left, Integer right) {
    // Sums wrap around, as in the process group.
    const bool is_logic = op.domain == Domain::logic;
    const std::uint64_t a = is_logic ? left != 0 : static_cast<std::uint64_t>(left);
    const std::uint64_t b = is_logic ? right != 0 : static_cast<std::uint64_t>(right);
    switch (op.reduce) {
        case ReduceOp::sum:
            // NOLINTNEXTLINE(bugprone-misplaced-widening-cast): Integer is no wider.
            return static_cast<Integer>(a + b);
        case ReduceOp::product:
            // NOLINTNEXTLINE(bugprone-misplaced-widening-cast): Integer is no wider.
            return static_cast<Integer>(a * b);
        case ReduceOp::min:
            return std::min(left, right);
        case ReduceOp::bit_and:
            return static_cast<Integer>(a & b);
        case ReduceOp::bit_or:
            return static_cast<Integer>(a | b);
        case ReduceOp::bit_xor:
            return static_cast<Integer>(a ^ b);
        default:
            return std::max(left, right);
    }
}

template <class T>
void fold(MPI_Op op, std::span<const std::byte> values, std::span<std::byte> into) {
    const Op& known = op_of(op);
    for (std::size_t at = 0; at + sizeof(T) <= into.size(); at += sizeof(T)) {
        T left{};
        T right{};
        std::memcpy(&left, into.data() + at, sizeof(T));
        std::memcpy(&right, values.data() + at, sizeof(T));
        left = combined(known, left, right);
        std::memcpy(into.data() + at, &left, sizeof(T));
    }
}

template <class Integer>
constexpr Datatype integer(const char* name) {
    Datatype type{name, Kind::integer, sizeof(Integer), std::nullopt, fold<Integer>};
    if constexpr (sizeof(Integer) != 2) {
        type.dtype = DTypeOf<Integer>::value;
    }
    return type;
}

using Character = std::conditional_t<std::is_signed_v<char>, signed char, unsigned char>;

/// In the order of mpi.h, whose first is 1.
constexpr std::array kDatatypes = {
    Datatype{"MPI_BYTE", Kind::byte, 1, DType::uint8, nullptr},
    integer<Character>("MPI_CHAR"),
    integer<signed char>("MPI_SIGNED_CHAR"),
    integer<unsigned char>("MPI_UNSIGNED_CHAR"),
    integer<short>("MPI_SHORT"),
    integer<unsigned short>("MPI_UNSIGNED_SHORT"),
    integer<int>("MPI_INT"),
    integer<unsigned>("MPI_UNSIGNED"),
    integer<long>("MPI_LONG"),
    integer<unsigned long>("MPI_UNSIGNED_LONG"),
    integer<long long>("MPI_LONG_LONG"),
    integer<unsigned long long>("MPI_UNSIGNED_LONG_LONG"),
    Datatype{"MPI_FLOAT", Kind::floating, sizeof(float), DType::float32, nullptr},
    Datatype{"MPI_DOUBLE", Kind::floating, sizeof(double), DType::float64, nullptr},
    Datatype{"MPI_C_BOOL", Kind::boolean, sizeof(bool), DType::uint8, nullptr},
    Datatype{"MPI_CXX_BOOL", Kind::boolean, sizeof(bool), DType::uint8, nullptr},
    integer<std::int8_t>("MPI_INT8_T"),
    integer<std::uint8_t>("MPI_UINT8_T"),
    integer<std::int16_t>("MPI_INT16_T"),
    integer<std::uint16_t>("MPI_UINT16_T"),
    integer<std::int32_t>("MPI_INT32_T"),
    integer<std::uint32_t>("MPI_UINT32_T"),
    integer<std::int64_t>("MPI_INT64_T"),
    integer<std::uint64_t>("MPI_UINT64_T"),
    integer<MPI_Aint>("MPI_AINT"),
};

bool is_defined(Domain domain, Kind kind) {
    switch (kind) {
        case Kind::byte:
            return domain == Domain::bits;
        case Kind::boolean:
            return domain == Domain::logic;
        case Kind::floating:
            return domain == Domain::values;
        case Kind::integer:
            break;
    }
    return true;
}

}  // namespace

const Datatype& datatype_of(MPI_Datatype type) {
    const auto number = reinterpret_cast<std::uintptr_t>(type);
    if (number == 0 || number > kDatatypes.size()) {
        throw CallError(MPI_ERR_TYPE, number == 0 ? "the datatype is MPI_DATATYPE_NULL"
                                                  : "the datatype is not defined in mpi.h");
    }
    return kDatatypes[number - 1];
}

std::size_t bytes_of(int count, MPI_Datatype type) {
    return count_of(count) * datatype_of(type).bytes;
}

void require_defined(MPI_Op op, const Datatype& type) {
    const Op& known = op_of(op);
    if (!is_defined(known.domain, type.kind)) {
        throw CallError(MPI_ERR_OP, std::string(known.name) + " is not defined on " + type.name);
    }
}

std::optional<GroupReduction> group_reduction(MPI_Op op, const Datatype& type) {
    const Op& known = op_of(op);
    if (known.domain == Domain::logic && type.kind == Kind::integer) {
        return std::nullopt;
    }
    if (type.dtype) {
        return GroupReduction{*type.dtype, known.reduce, 1};
    }
    return known.domain == Domain::bits
               ? std::optional(GroupReduction{DType::uint8, known.reduce, type.bytes})
               : std::nullopt;
}

}  // namespace regroup::mpi
