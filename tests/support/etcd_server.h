// SPDX-License-Identifier: Apache-2.0
//
// A real etcd on loopback.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/certificates.h"
#include "tests/support/program.h"

namespace regroup::testing {

/// One etcd. The destructor kills it.
class EtcdServer {
   public:
    /// `folder` keeps its data. `scheme`: "http" or "https". `flags` are added, such as
    /// --cert-file=....
    EtcdServer(std::string program, std::string folder, const std::string& scheme = "http",
               const std::vector<std::string>& flags = {});
    /// Starts it, or starts it again with the data that it had; the test fails if it does not
    /// serve.
    void start();
    void kill();

    [[nodiscard]] std::uint16_t port() const { return port_; }
    /// Requires that it has been started.
    [[nodiscard]] Program& program() { return *program_; }

   private:
    std::uint16_t port_;
    std::vector<std::string> command_;
    std::unique_ptr<Program> program_;
};

}  // namespace regroup::testing
