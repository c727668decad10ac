// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/net/fork_guard.h"

#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <unistd.h>
#include <unordered_set>

namespace regroup::net {
namespace {

struct Registry {
    std::mutex mutex{};
    std::unordered_set<int> descriptors{};  // guarded by mutex
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

/// Never destroyed: groups may outlive the destruction of statics.
Registry& registry() {
    static Registry* const only = [] {
        auto* const made = new Registry();
        // The forking thread holds the registry, so that it is consistent in the child.
        ::pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                         [] {
                             replace_sockets(registry().descriptors);
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

}  // namespace regroup::net
