// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/snapshot/copy_pool.h"

#include <algorithm>

#include "worker_sdk/src/base/helper_thread.h"

namespace regroup::snapshot {

CopyPool::CopyPool(unsigned threads) {
    for (unsigned i = 1; i < threads; ++i) {
        helpers_.push_back(start_helper_thread("regroup-copy", [this] { help(); }));
    }
}

CopyPool::~CopyPool() {
    {
        const std::lock_guard lock(mutex_);
        is_over_ = true;
    }
    changed_.notify_all();
    for (std::thread& helper : helpers_) {
        helper.join();
    }
}

void CopyPool::take() {
    for (std::size_t i = next_++; i < count_; i = next_++) {
        (*work_)(i);
    }
}

void CopyPool::help() {
    std::unique_lock lock(mutex_);
    for (std::uint64_t seen = 0;;) {
        changed_.wait(lock, [&] { return is_over_ || call_ != seen; });
        if (is_over_) {
            return;
        }
        seen = call_;
        lock.unlock();
        take();
        lock.lock();
        if (--busy_ == 0) {
            changed_.notify_all();
        }
    }
}

void CopyPool::run(std::size_t count, const std::function<void(std::size_t)>& work) {
    std::unique_lock lock(mutex_);
    work_ = &work;
    count_ = count;
    next_ = 0;
    if (count > 1 && !helpers_.empty()) {
        busy_ = helpers_.size();
        ++call_;
        changed_.notify_all();
    }
    lock.unlock();
    take();
    lock.lock();
    changed_.wait(lock, [this] { return busy_ == 0; });
}

}  // namespace regroup::snapshot
