// SPDX-License-Identifier: Apache-2.0
//
// Checks of what programs pass. Each throws CallError.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "worker_sdk/mpi/mpi.h"

namespace regroup::mpi {

/// A call that cannot be carried out as it is; `code` is MPI's.
class CallError : public std::runtime_error {
   public:
    CallError(int code, const std::string& detail) : std::runtime_error(detail), code_(code) {}

    [[nodiscard]] int code() const noexcept { return code_; }

   private:
    int code_;
};

[[nodiscard]] std::size_t count_of(int count);
/// Refuses a null buffer, unless `bytes` is 0.
void require_buffer(const void* buffer, std::size_t bytes);
template <class T>
void require_pointer(const T* pointer, const char* name) {
    if (pointer == nullptr) {
        throw CallError(MPI_ERR_ARG, std::string("the pointer ") + name + " is null");
    }
}

/// Sets a result of a call.
template <class T>
void give(T value, T* out, const char* name) {
    require_pointer(out, name);
    *out = value;
}

}  // namespace regroup::mpi
