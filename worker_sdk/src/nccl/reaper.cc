// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/reaper.h"

#include <regroup/error.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <memory>
#include <utility>

#include "rendezvous/base/result.h"
#include "worker_sdk/src/base/helper_thread.h"

namespace regroup::nccl {
namespace {

thread_local bool is_reaping = false;

void tell_once(int device, Duration limit) {
    static std::atomic<bool> told = false;
    if (!told.exchange(true)) {
        std::fprintf(stderr,
                     "regroup: what a group holds on cuda:%d could not be freed within %s; it "
                     "stays until it can be. A CUDA graph with operations of a group must be "
                     "destroyed before the group.\n",
                     device, format_duration(limit).c_str());
    }
}

void carry_out(const Backend& backend, int device, std::function<void()>& job) {
    is_reaping = true;
    try {
        backend.runtime.set_device(device);
        backend.runtime.stay_out_of_captures();
    } catch (const Error&) {
        // The GPU is lost; the job still frees memory of the host.
    }
    job();
    job = nullptr;
}

}  // namespace

void Reaper::take(std::function<void()> job) noexcept {
    if (is_reaping) {
        job();
        return;
    }
    // The thread of the job, not this one, destroys the objects that the job owns.
    const auto owned = std::make_shared<std::function<void()>>(std::move(job));
    const auto done = std::make_shared<std::promise<void>>();
    {
        const std::lock_guard lock(mutex_);
        std::erase_if(under_way_, [](const std::future<void>& each) {
            return each.wait_for(Duration::zero()) == std::future_status::ready;
        });
        under_way_.push_back(done->get_future());
    }
    try {
        start_helper_thread("regroup-reaper", [owned, done, backend = backend_, device = device_] {
            carry_out(backend, device, *owned);
            done->set_value();
        }).detach();
    } catch (const std::exception&) {
        // The system cannot create a thread.
        (*owned)();
        *owned = nullptr;
        done->set_value();
    }
}

void Reaper::await_all() noexcept {
    std::vector<std::future<void>> awaited;
    {
        const std::lock_guard lock(mutex_);
        awaited.swap(under_way_);
    }
    const Instant deadline = after(SteadyClock().now(), backend_.freeing_max);
    for (const std::future<void>& each : awaited) {
        if (each.wait_until(deadline) != std::future_status::ready) {
            tell_once(device_, backend_.freeing_max);
        }
    }
}

}  // namespace regroup::nccl
