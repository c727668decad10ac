// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace regroup::agent {

/// Lets other threads call functions on the thread of an io_context, as long as the owner wants to
/// hear of it. Threads that are left behind may keep it for longer than the io_context.
class Mouth {
   public:
    explicit Mouth(boost::asio::io_context& io) : io_(&io) {}

    /// Any thread. Without effect after `close`.
    static void post(const std::shared_ptr<Mouth>& mouth, std::function<void()> function) {
        const std::lock_guard lock(mouth->mutex_);
        if (mouth->io_ != nullptr) {
            boost::asio::post(*mouth->io_, [mouth, function = std::move(function)] {
                if (mouth->is_open()) {
                    function();
                }
            });
        }
    }
    /// On the thread of the io_context: no function is called from now on.
    void close() {
        const std::lock_guard lock(mutex_);
        io_ = nullptr;
    }

   private:
    [[nodiscard]] bool is_open() {
        const std::lock_guard lock(mutex_);
        return io_ != nullptr;
    }

    std::mutex mutex_;
    boost::asio::io_context* io_;
};

}  // namespace regroup::agent
