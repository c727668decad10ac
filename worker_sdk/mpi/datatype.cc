// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/mpi/datatype.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "worker_sdk/mpi/session.h"

namespace regroup::mpi {
namespace {

template <class Integer>
constexpr Element integer_element() {
    constexpr bool kSigned = std::is_signed_v<Integer>;
    switch (sizeof(Integer)) {
        case 1:
            return kSigned ? Element::int8 : Element::uint8;
        case 2:
            return kSigned ? Element::int16 : Element::uint16;
        case 4:
            return kSigned ? Element::int32 : Element::uint32;
        default:
            return kSigned ? Element::int64 : Element::uint64;
    }
}

template <class Integer>
constexpr Datatype integer(const char* name) {
    return {name, integer_element<Integer>(), sizeof(Integer)};
}

/// In the order of mpi.h, whose first is 1.
constexpr std::array kDatatypes = {
    Datatype{"MPI_BYTE", Element::byte, 1},
    integer<char>("MPI_CHAR"),
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
    Datatype{"MPI_FLOAT", Element::float32, sizeof(float)},
    Datatype{"MPI_DOUBLE", Element::float64, sizeof(double)},
    Datatype{"MPI_C_BOOL", Element::boolean, sizeof(bool)},
    Datatype{"MPI_CXX_BOOL", Element::boolean, sizeof(bool)},
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

/// In the order of mpi.h, whose first is 1.
enum class Op : std::uint8_t {
    none,
    sum,
    product,
    min,
    max,
    logical_and,
    logical_or,
    logical_xor,
    bit_and,
    bit_or,
    bit_xor,
};

constexpr std::array kOpNames = {"MPI_OP_NULL", "MPI_SUM",  "MPI_PROD", "MPI_MIN",
                                 "MPI_MAX",     "MPI_LAND", "MPI_LOR",  "MPI_LXOR",
                                 "MPI_BAND",    "MPI_BOR",  "MPI_BXOR"};

Op op_of(MPI_Op op) {
    const auto number = reinterpret_cast<std::uintptr_t>(op);
    if (number == 0 || number >= kOpNames.size()) {
        throw CallError(MPI_ERR_OP, "the operation is not defined in mpi.h");
    }
    return static_cast<Op>(number);
}

bool is_float(Element element) {
    return element == Element::float32 || element == Element::float64;
}

bool is_defined(Op op, Element element) {
    const bool bits = op >= Op::bit_and;
    const bool logic = op >= Op::logical_and && !bits;
    if (element == Element::byte) {
        return bits;
    }
    if (element == Element::boolean) {
        return logic;
    }
    return !is_float(element) || !(bits || logic);
}

/// The dtype whose elements are MPI's.
std::optional<DType> dtype_of(Element element) {
    switch (element) {
        case Element::int8:
            return DType::int8;
        case Element::byte:
        case Element::boolean:  // Of one byte, and 0 or 1.
        case Element::uint8:
            return DType::uint8;
        case Element::int32:
            return DType::int32;
        case Element::uint32:
            return DType::uint32;
        case Element::int64:
            return DType::int64;
        case Element::uint64:
            return DType::uint64;
        case Element::float32:
            return DType::float32;
        case Element::float64:
            return DType::float64;
        case Element::int16:
        case Element::uint16:
            break;
    }
    return std::nullopt;
}

template <class Integer>
Integer combined(Op op, Integer left, Integer right) {
    // Sums wrap around, as in the process group.
    const auto a = static_cast<std::uint64_t>(left);
    const auto b = static_cast<std::uint64_t>(right);
    switch (op) {
        case Op::sum:
            return static_cast<Integer>(a + b);
        case Op::product:
            return static_cast<Integer>(a * b);
        case Op::min:
            return std::min(left, right);
        case Op::logical_and:
            return left != 0 && right != 0 ? 1 : 0;
        case Op::logical_or:
            return left != 0 || right != 0 ? 1 : 0;
        case Op::logical_xor:
            return (left != 0) != (right != 0) ? 1 : 0;
        default:
            return std::max(left, right);
    }
}

template <class T>
void fold_as(Op op, std::span<const std::byte> values, std::span<std::byte> into) {
    for (std::size_t at = 0; at + sizeof(T) <= into.size(); at += sizeof(T)) {
        T left{};
        T right{};
        std::memcpy(&left, into.data() + at, sizeof(T));
        std::memcpy(&right, values.data() + at, sizeof(T));
        left = combined(op, left, right);
        std::memcpy(into.data() + at, &left, sizeof(T));
    }
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

void require_defined(MPI_Op op, const Datatype& type) {
    const Op known = op_of(op);
    if (!is_defined(known, type.element)) {
        throw CallError(MPI_ERR_OP, std::string(kOpNames[static_cast<std::size_t>(known)]) +
                                        " is not defined on " + type.name);
    }
}

std::optional<GroupReduction> group_reduction(MPI_Op op, const Datatype& type) {
    // The logic of 0 and 1 is that of their bits.
    static constexpr std::array kOps = {ReduceOp::sum,     ReduceOp::product, ReduceOp::min,
                                        ReduceOp::max,     ReduceOp::bit_and, ReduceOp::bit_or,
                                        ReduceOp::bit_xor, ReduceOp::bit_and, ReduceOp::bit_or,
                                        ReduceOp::bit_xor};
    const Op known = op_of(op);
    const bool bits = known >= Op::bit_and;
    if (known >= Op::logical_and && !bits && type.element != Element::boolean) {
        return std::nullopt;
    }
    const ReduceOp reduce = kOps[static_cast<std::size_t>(known) - 1];
    if (const auto dtype = dtype_of(type.element)) {
        return GroupReduction{*dtype, reduce, 1};
    }
    return bits ? std::optional(GroupReduction{DType::uint8, reduce, type.bytes}) : std::nullopt;
}

void fold(MPI_Op op, const Datatype& type, std::span<const std::byte> values,
          std::span<std::byte> into) {
    const Op known = op_of(op);
    switch (type.element) {
        case Element::int8:
            return fold_as<std::int8_t>(known, values, into);
        case Element::uint8:
            return fold_as<std::uint8_t>(known, values, into);
        case Element::int16:
            return fold_as<std::int16_t>(known, values, into);
        case Element::uint16:
            return fold_as<std::uint16_t>(known, values, into);
        case Element::int32:
            return fold_as<std::int32_t>(known, values, into);
        case Element::uint32:
            return fold_as<std::uint32_t>(known, values, into);
        case Element::int64:
            return fold_as<std::int64_t>(known, values, into);
        case Element::uint64:
            return fold_as<std::uint64_t>(known, values, into);
        case Element::byte:
        case Element::boolean:
        case Element::float32:
        case Element::float64:
            break;  // The group reduces them.
    }
}

}  // namespace regroup::mpi
