// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/net/fork_guard.h"

#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unordered_map>
#include <unordered_set>

namespace regroup::net {
namespace {

struct Registry {
    std::mutex mutex{};
    std::unordered_set<int> descriptors{};              // guarded by mutex
    std::unordered_map<void*, std::size_t> mappings{};  // guarded by mutex; the bytes of each
};

void replace_sockets(const std::unordered_set<int>& descriptors) noexcept {
    const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int descriptor : descriptors) {
        // Replaced, not closed, since the child's copy of the owner may close the number again.
        if (nothing < 0 || ::dup3(nothing, descriptor, O_CLOEXEC) < 0) {
            ::close(descriptor);
        }
    }
    if (nothing >= 0) {
        ::close(nothing);
    }
}

void replace_mappings(const std::unordered_map<void*, std::size_t>& mappings) noexcept {
    for (const auto& [address, bytes] : mappings) {
        // If it fails, the mapping stays as it was.
        (void)::mmap(address, bytes, PROT_READ | PROT_WRITE,
                     MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
}

/// Never destroyed: groups may outlive the destruction of statics.
Registry& registry() {
    static Registry* const only = [] {
        auto* const made = new Registry();
        // The forking thread holds the registry, so that it is consistent in the child.
        ::pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                         [] {
                             replace_sockets(registry().descriptors);
                             replace_mappings(registry().mappings);
                             registry().mutex.unlock();
                         });
        return made;
    }();
    return *only;
}

}  // namespace

ForkGuard::ForkGuard(int descriptor) : descriptor_(descriptor) {
    if (descriptor_ >= 0) {
        const std::lock_guard lock(registry().mutex);
        registry().descriptors.insert(descriptor_);
    }
}

ForkGuard::~ForkGuard() {
    if (descriptor_ >= 0) {
        const std::lock_guard lock(registry().mutex);
        registry().descriptors.erase(descriptor_);
    }
}

MappingForkGuard::MappingForkGuard(void* address, std::size_t bytes) : address_(address) {
    const std::lock_guard lock(registry().mutex);
    registry().mappings.emplace(address, bytes);
}

MappingForkGuard::~MappingForkGuard() {
    const std::lock_guard lock(registry().mutex);
    registry().mappings.erase(address_);
}

}  // namespace regroup::net
