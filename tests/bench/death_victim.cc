// SPDX-License-Identifier: Apache-2.0
//
// A worker that holds MEGABYTES of memory, with every page touched, until it is killed:
//
//     death_victim MEGABYTES
//
// Prints "ready" when it has attached to its agent and touched the memory.
#include <regroup/context.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: death_victim MEGABYTES\n");
        return 2;
    }
    (void)regroup::Context::from_environment();
    const std::size_t bytes = std::strtoull(argv[1], nullptr, 10) << 20U;
    if (bytes > 0) {
        // In pages of 4 KiB, as most programs have them.
        void* memory =
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED || ::madvise(memory, bytes, MADV_NOHUGEPAGE) != 0) {
            return 1;
        }
        for (std::size_t at = 0; at < bytes; at += 4096) {
            static_cast<volatile char*>(memory)[at] = 1;
        }
    }
    std::printf("ready\n");
    std::fflush(stdout);
    for (;;) {
        ::pause();
    }
}
