// SPDX-License-Identifier: Apache-2.0
//
// A number that one process sets and others read at any time: a mapped file of eight bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace regroup::chaos {

class Dial {
   public:
    /// Makes the file with the value 0, if it is not there. `is_there()` tells whether that worked.
    explicit Dial(const char* path) noexcept {
        const int fd = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0) {
            return;
        }
        if (::ftruncate(fd, sizeof(Cell)) == 0) {
            void* memory = ::mmap(nullptr, sizeof(Cell), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            cell_ = memory != MAP_FAILED ? static_cast<Cell*>(memory) : nullptr;
        }
        ::close(fd);
    }
    ~Dial() {
        if (cell_ != nullptr) {
            ::munmap(cell_, sizeof(Cell));
        }
    }
    Dial(const Dial&) = delete;
    Dial& operator=(const Dial&) = delete;

    [[nodiscard]] bool is_there() const noexcept { return cell_ != nullptr; }
    [[nodiscard]] std::int64_t get() const noexcept { return cell_ != nullptr ? cell_->load() : 0; }
    void set(std::int64_t value) noexcept {
        if (cell_ != nullptr) {
            cell_->store(value);
        }
    }

   private:
    using Cell = std::atomic<std::int64_t>;
    static_assert(Cell::is_always_lock_free);
    Cell* cell_ = nullptr;
};

}  // namespace regroup::chaos
