// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace regroup {

/// Remembers the process in which it was made. A forked child has a copy of each object of its
/// parent, but none of the threads, and the same shared memory and connections: to use such a copy
/// would change the data of the parent and its peers, and to destroy it would wait for threads that
/// do not exist.
///
/// Notices children of fork(), not those of vfork(), posix_spawn() and clone(). Costs no system
/// call. Any thread.
class ProcessMark {
   public:
    ProcessMark() noexcept;

    /// False in a process that was forked from the one that made this.
    [[nodiscard]] bool is_here() const noexcept { return number_ == current(); }
    /// Throws Error `invalid_argument` in such a process. `call` is what the program has called.
    void require(const char* call) const;

    /// Not 0, and different in a process and in all from which it was forked.
    [[nodiscard]] static std::uint64_t current() noexcept;

   private:
    std::uint64_t number_;
};

/// Deletes an object in the process that made it, and keeps it in a forked child.
class OwnerDeleter {
   public:
    template <class T>
    void operator()(T* object) const {
        if (mark_.is_here()) {
            delete object;
        } else {
            keep(object);
        }
    }

   private:
    /// Leak checkers then find a pointer to the object.
    static void keep(const void* object);

    ProcessMark mark_{};
};

}  // namespace regroup
