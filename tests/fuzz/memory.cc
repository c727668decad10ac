// SPDX-License-Identifier: Apache-2.0
//
// A sanitizer has its own allocator, with hooks. Elsewhere the operators of C++ are replaced.
#include "tests/fuzz/memory.h"

#include <cstdlib>
#include <malloc.h>
#include <new>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define REGROUP_HAS_HOOKS
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REGROUP_HAS_HOOKS
#endif

namespace {

regroup::fuzz::Memory counted;

}  // namespace

#ifdef REGROUP_HAS_HOOKS

#include <sanitizer/allocator_interface.h>

const regroup::fuzz::Memory& regroup::fuzz::memory() {
    [[maybe_unused]] static const int installed = __sanitizer_install_malloc_and_free_hooks(
        [](const volatile void* /*memory*/, std::size_t size) {
            counted.live += size;
            counted.allocated += size;
        },
        [](const volatile void* memory) {
            counted.live -= __sanitizer_get_allocated_size(memory);
        });
    return counted;
}

#else

const regroup::fuzz::Memory& regroup::fuzz::memory() {
    return counted;
}

void* operator new(std::size_t size) {
    void* memory = std::malloc(size == 0 ? 1 : size);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    counted.live += ::malloc_usable_size(memory);
    counted.allocated += size;
    return memory;
}
void operator delete(void* memory) noexcept {
    counted.live -= memory == nullptr ? 0 : ::malloc_usable_size(memory);
    std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
    operator delete(memory);
}

#endif
