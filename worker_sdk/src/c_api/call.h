// SPDX-License-Identifier: Apache-2.0
// The frame of every function of the C interface: no exception leaves it, every pointer is checked,
// and the sentence of a failure is stored for the thread.
#pragma once

#include <regroup/c_api.h>
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct regroup_context {
    regroup::Context value;
};

struct regroup_store {
    std::shared_ptr<regroup::Store> value;
};

struct regroup_group {
    std::shared_ptr<regroup::ProcessGroup> parent;  // of a new_group
    std::shared_ptr<regroup::ProcessGroup> value;   // shared with what must not outlive it
    std::string backend;
};

struct regroup_work {
    regroup::Work value;
};

namespace regroup::c_api {

/// Keeps `detail` for regroup_last_error and returns the code for C.
regroup_errc fail(Errc code, std::string_view detail) noexcept;

/// The failures of this thread so far: their number, and the code of the last one.
struct Failures {
    std::uint64_t count = 0;
    regroup_errc last = REGROUP_OK;
};
[[nodiscard]] Failures failures() noexcept;

/// Empty for a number that is no failure.
[[nodiscard]] std::optional<Errc> to_errc(regroup_errc code) noexcept;

/// Throws the failure that a callback has returned: with the sentence that it recorded since
/// `before`, the failures of this thread at the time of the call. `name` is the callback's.
void require_ok(regroup_errc returned, const char* name, const Failures& before);

/// One call of one function, for its refusals.
struct Call {
    const char* function;

    [[noreturn]] void refuse(const std::string& detail) const {
        throw Error(Errc::invalid_argument, std::string(function) + ": " + detail);
    }

    /// The target of `pointer`. Refuses NULL.
    template <class T>
    T& operator()(T* pointer, const char* name) const {
        if (pointer == nullptr) {
            refuse(std::string(name) + " is NULL");
        }
        return *pointer;
    }

    /// The place of a result, set to NULL first.
    template <class T>
    T*& result(T** pointer, const char* name) const {
        return (*this)(pointer, name) = nullptr;
    }

    /// Refuses a structure of options or callbacks that was compiled for another release.
    template <class Struct>
    void require_size(const Struct& given, const char* name) const {
        if (given.struct_bytes != sizeof given) {
            refuse(std::string(name) + "'s struct_bytes is " + std::to_string(given.struct_bytes) +
                   ", and not " + std::to_string(sizeof given) + ", its size in this release");
        }
    }

    [[nodiscard]] std::string text(const char* pointer, const char* name) const {
        return &(*this)(pointer, name);
    }

    /// `count` values. NULL is allowed if there are none.
    template <class T>
    [[nodiscard]] std::vector<T> copy(const T* values, std::size_t count, const char* name) const {
        return count == 0 ? std::vector<T>()
                          : std::vector<T>(&(*this)(values, name), values + count);
    }

    /// `bytes` bytes. NULL is allowed if there are none.
    [[nodiscard]] std::string_view bytes(const void* data, std::size_t bytes,
                                         const char* name) const;
    [[nodiscard]] std::vector<std::string> keys(const char* const* keys, std::size_t count) const;
    [[nodiscard]] DType dtype(regroup_dtype dtype, const std::string& name) const;
    [[nodiscard]] TensorView tensor(const regroup_tensor& tensor, const char* name) const;
    [[nodiscard]] ReduceOp reduce_op(regroup_reduce_op op) const;
    /// 0 is the `fallback`.
    [[nodiscard]] std::chrono::nanoseconds timeout(std::int64_t timeout_ms,
                                                   std::chrono::nanoseconds fallback) const;
    /// Memory for regroup_free, with a NUL behind it.
    void give(std::string_view value, char** memory, std::size_t* bytes) const;
};

/// Runs `body`, which gets the Call. Anything else than the exceptions of the SDK and of the
/// standard library is a bug, and ends the program.
template <class Body>
regroup_errc guarded(const char* function, Body&& body) noexcept {
    try {
        std::forward<Body>(body)(Call{function});
        return REGROUP_OK;
    } catch (const Error& error) {
        return fail(error.code(), error.what());
    } catch (const std::bad_alloc&) {
        return fail(Errc::system, "out of memory");
    } catch (const std::exception& error) {
        return fail(Errc::system, error.what());
    }
}

}  // namespace regroup::c_api
