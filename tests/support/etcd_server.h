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
    /// The same without waiting until it serves.
    void launch();
    void kill();

    [[nodiscard]] std::uint16_t port() const { return port_; }
    /// Requires that it has been started.
    [[nodiscard]] Program& program() { return *program_; }

   private:
    std::uint16_t port_;
    std::vector<std::string> command_;
    std::unique_ptr<Program> program_;
};

/// Three etcds that are members of one cluster.
class EtcdCluster {
   public:
    /// Members keep their data in `folder`.
    EtcdCluster(const std::string& program, const std::string& folder);
    /// The test fails if they do not serve.
    void start();
    /// "127.0.0.1:2379,127.0.0.1:2380,127.0.0.1:2381", for --state.
    [[nodiscard]] std::string endpoints() const;
    /// Kills the member that leads the others, as their logs say.
    void kill_leader();

   private:
    std::vector<std::unique_ptr<EtcdServer>> members_;
};

}  // namespace regroup::testing
