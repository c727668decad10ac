// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace regroup::bench {

using Ports = std::vector<std::uint16_t>;
/// Fills the ports, and leaves what serves them in the event loop. May return what must live on.
using Serve = std::function<std::shared_ptr<void>(boost::asio::io_context&, Ports&)>;

/// Another process. It ends with this object, at the latest with its parent.
class Child {
   public:
    explicit Child(const std::function<void()>& work);
    /// Serves `ports_count` ports. Gives up if it does not start.
    Child(std::size_t ports_count, const Serve& serve);
    ~Child();
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    [[nodiscard]] const Ports& ports() const { return ports_; }
    /// Its folder in /proc.
    [[nodiscard]] std::string folder() const { return "/proc/" + std::to_string(pid_); }

    struct Spent {
        double cpu_ms = 0;
        double memory_kib = 0;  ///< Resident now.
    };
    [[nodiscard]] Spent spent() const;

   private:
    Ports ports_;
    pid_t pid_ = -1;
};

/// Ends the program with this sentence and the last system error.
[[noreturn]] void give_up(const std::string& why);
/// Allows this process as many descriptors as it may have. Returns their number.
std::size_t raise_descriptor_limit();
/// A connection to a port of this machine, without delay.
[[nodiscard]] int dial(std::uint16_t port);

inline double microseconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
        .count();
}
inline double ms_since(std::chrono::steady_clock::time_point begin) {
    return microseconds_since(begin) / 1000;
}

}  // namespace regroup::bench
