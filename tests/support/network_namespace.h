// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::testing {

/// A network namespace without a name, held by a descriptor. It ends with this object and the last
/// process in it. One thread.
class NetworkNamespace {
   public:
    /// Makes a namespace. The calling thread stays in its own. Errors: system.
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

/// The path of a tool of the system (`ip`, `nft`), also outside of PATH; empty if there is none.
[[nodiscard]] std::string find_tool(const std::string& name);

/// Runs a tool and waits for it. Errors: system, with its output, or if it is missing.
Result<void> run_tool(const std::vector<std::string>& words);

}  // namespace regroup::testing
