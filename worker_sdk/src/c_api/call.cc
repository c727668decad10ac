// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/c_api/call.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace regroup::c_api {
namespace {

constexpr std::size_t kErrorBytes = 2048;

/// Not a string, since recording an out-of-memory error must not allocate.
thread_local std::array<char, kErrorBytes> last_error{};
thread_local Failures failures_here;

constexpr std::array kErrcs = {Errc::invalid_argument,
                               Errc::deadline_exceeded,
                               Errc::disconnected,
                               Errc::overloaded,
                               Errc::fenced,
                               Errc::closed,
                               Errc::system};

template <class Enum>
constexpr bool equal(std::int32_t c, Enum cpp) {
    return c == static_cast<std::int32_t>(cpp);
}

static_assert(equal(REGROUP_FLOAT32, DType::float32) && equal(REGROUP_FLOAT64, DType::float64) &&
              equal(REGROUP_INT32, DType::int32) && equal(REGROUP_INT64, DType::int64) &&
              equal(REGROUP_UINT8, DType::uint8) && equal(REGROUP_INT8, DType::int8) &&
              equal(REGROUP_UINT32, DType::uint32) && equal(REGROUP_UINT64, DType::uint64) &&
              equal(REGROUP_FLOAT16, DType::float16) && equal(REGROUP_BFLOAT16, DType::bfloat16) &&
              equal(REGROUP_FLOAT8_E4M3FN, DType::float8_e4m3fn) &&
              equal(REGROUP_FLOAT8_E5M2, DType::float8_e5m2));
static_assert(equal(REGROUP_CPU, DeviceKind::cpu) && equal(REGROUP_CUDA, DeviceKind::cuda));
static_assert(equal(REGROUP_SUM, ReduceOp::sum) && equal(REGROUP_PRODUCT, ReduceOp::product) &&
              equal(REGROUP_MIN, ReduceOp::min) && equal(REGROUP_MAX, ReduceOp::max) &&
              equal(REGROUP_AVG, ReduceOp::avg) && equal(REGROUP_BIT_AND, ReduceOp::bit_and) &&
              equal(REGROUP_BIT_OR, ReduceOp::bit_or) && equal(REGROUP_BIT_XOR, ReduceOp::bit_xor));
static_assert(REGROUP_NOT_A_MEMBER == ProcessGroup::kNotAMember);

static_assert(equal(REGROUP_INVALID_ARGUMENT, Errc::invalid_argument) &&
              equal(REGROUP_DEADLINE_EXCEEDED, Errc::deadline_exceeded) &&
              equal(REGROUP_DISCONNECTED, Errc::disconnected) &&
              equal(REGROUP_OVERLOADED, Errc::overloaded) && equal(REGROUP_FENCED, Errc::fenced) &&
              equal(REGROUP_CLOSED, Errc::closed) && equal(REGROUP_SYSTEM, Errc::system));

regroup_errc to_c(Errc code) noexcept {
    return static_cast<regroup_errc>(code);
}

}  // namespace

regroup_errc fail(Errc code, std::string_view detail) noexcept {
    const std::size_t bytes = std::min(detail.size(), last_error.size() - 1);
    std::memcpy(last_error.data(), detail.data(), bytes);
    last_error[bytes] = '\0';
    failures_here = {.count = failures_here.count + 1, .last = to_c(code)};
    return failures_here.last;
}

Failures failures() noexcept {
    return failures_here;
}

std::optional<Errc> to_errc(regroup_errc code) noexcept {
    for (const Errc candidate : kErrcs) {
        if (to_c(candidate) == code) {
            return candidate;
        }
    }
    return std::nullopt;
}

void require_ok(regroup_errc returned, const char* name, const Failures& before) {
    if (returned == REGROUP_OK) {
        return;
    }
    const std::string callback = std::string("the callback ") + name + " returned ";
    const std::optional<Errc> code = to_errc(returned);
    if (!code) {
        throw Error(Errc::invalid_argument,
                    callback + std::to_string(returned) +
                        ", which is no regroup_errc; return REGROUP_OK or a failure's code");
    }
    const bool has_said = failures_here.count != before.count && failures_here.last == returned;
    throw Error(*code,
                has_said ? std::string(last_error.data()) : callback + regroup_errc_name(returned));
}

std::string_view Call::bytes(const void* data, std::size_t bytes, const char* name) const {
    return bytes == 0 ? std::string_view()
                      : std::string_view(&(*this)(static_cast<const char*>(data), name), bytes);
}

std::vector<std::string> Call::keys(const char* const* keys, std::size_t count) const {
    std::vector<std::string> texts;
    for (const char* const key : copy(keys, count, "keys")) {
        texts.push_back(text(key, "a key"));
    }
    return texts;
}

DType Call::dtype(regroup_dtype dtype, const std::string& name) const {
    if (dtype < REGROUP_FLOAT32 || dtype > REGROUP_FLOAT8_E5M2) {
        refuse(name + " is " + std::to_string(dtype) +
               ", which is none of REGROUP_FLOAT32 (0) to REGROUP_FLOAT8_E5M2 (11)");
    }
    return static_cast<DType>(dtype);
}

TensorView Call::tensor(const regroup_tensor& tensor, const char* name) const {
    const DType checked = dtype(tensor.dtype, std::string(name) + "'s dtype");
    if (tensor.device_kind != REGROUP_CPU && tensor.device_kind != REGROUP_CUDA) {
        refuse(std::string(name) + " has device_kind " + std::to_string(tensor.device_kind) +
               ", which is neither REGROUP_CPU (0) nor REGROUP_CUDA (1)");
    }
    if (tensor.data == nullptr && tensor.count != 0) {
        refuse(std::string(name) + " has " + std::to_string(tensor.count) +
               " elements and its data is NULL");
    }
    return {tensor.data,
            tensor.count,
            checked,
            {.kind = static_cast<DeviceKind>(tensor.device_kind), .index = tensor.device_index}};
}

ReduceOp Call::reduce_op(regroup_reduce_op op) const {
    if (op < REGROUP_SUM || op > REGROUP_BIT_XOR) {
        refuse("op is " + std::to_string(op) +
               ", which is none of REGROUP_SUM (0) to REGROUP_BIT_XOR (7)");
    }
    return static_cast<ReduceOp>(op);
}

std::chrono::nanoseconds Call::timeout(std::int64_t timeout_ms,
                                       std::chrono::nanoseconds fallback) const {
    constexpr std::int64_t kMost = 1'000'000'000'000;  // 30 years, so that nothing overflows
    if (timeout_ms < 0 || timeout_ms > kMost) {
        refuse("timeout_ms is " + std::to_string(timeout_ms) + ", which is not from 0 to " +
               std::to_string(kMost));
    }
    return timeout_ms == 0 ? fallback : std::chrono::milliseconds(timeout_ms);
}

void Call::give(std::string_view value, char** memory, std::size_t* bytes) const {
    auto* const copy = static_cast<char*>(std::malloc(value.size() + 1));
    if (copy == nullptr) {
        throw std::bad_alloc();
    }
    std::memcpy(copy, value.data(), value.size());
    copy[value.size()] = '\0';
    *memory = copy;
    if (bytes != nullptr) {
        *bytes = value.size();
    }
}

}  // namespace regroup::c_api

using regroup::Errc;

const char* regroup_version() {
    return REGROUP_VERSION;
}

const char* regroup_errc_name(regroup_errc code) {
    if (code == REGROUP_OK) {
        return "ok";
    }
    const std::optional<Errc> known = regroup::c_api::to_errc(code);
    return known ? regroup::to_string(*known).data() : "unknown";  // Literals end with a NUL.
}

const char* regroup_last_error() {
    return regroup::c_api::last_error.data();
}

regroup_errc regroup_fail(regroup_errc code, const char* text) {
    const std::optional<Errc> known = regroup::c_api::to_errc(code);
    if (!known) {
        return regroup::c_api::fail(
            Errc::invalid_argument,
            "regroup_fail: " + std::to_string(code) + " is the code of no failure");
    }
    return regroup::c_api::fail(*known, text == nullptr ? "" : text);
}

void regroup_free(void* memory) {
    std::free(memory);
}
