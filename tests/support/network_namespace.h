// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::testing {

/// A network namespace that only a descriptor holds: without a name, it is gone when this object
/// and the last process in it are, however they end. One thread.
class NetworkNamespace {
   public:
    /// A new one. The calling thread is where it was afterwards. Errors: system.
    static Result<NetworkNamespace> make();

    ~NetworkNamespace();
    NetworkNamespace(NetworkNamespace&& other) noexcept;
    NetworkNamespace& operator=(NetworkNamespace&&) = delete;

    /// Runs `action` with the calling thread, and what it starts, in this namespace.
    void within(const std::function<void()>& action) const;
    /// Runs tools in this namespace, each given as its words; the first failure. Errors: system.
    Result<void> run(const std::vector<std::vector<std::string>>& commands) const;
    /// The namespace as a file that other processes can open.
    [[nodiscard]] std::string path() const;

   private:
    explicit NetworkNamespace(int fd) : fd_(fd) {}
    int fd_ = -1;
};

/// The path of a tool of the system (`ip`, `nft`), also where a user's PATH does not lead; empty if
/// there is none.
[[nodiscard]] std::string find_tool(const std::string& name);

/// Runs a tool to its end. Errors: system, with what it said, or that it is missing.
Result<void> run_tool(const std::vector<std::string>& words);

}  // namespace regroup::testing
