// SPDX-License-Identifier: Apache-2.0
//
// A real etcd on loopback, and certificates for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/program.h"

namespace regroup::testing {

/// Certificates made by the program openssl. All files are in `folder`, and valid for two days.
class CertificateMaker {
   public:
    /// Makes an authority: NAME.crt and NAME.key.
    explicit CertificateMaker(std::string folder, const std::string& name = "ca");

    struct Leaf {
        std::string subject;       ///< "/CN=etcd".
        std::string alternatives;  ///< "IP:127.0.0.1,DNS:localhost".
        bool expired = false;
    };
    /// Makes NAME.crt, signed by the authority, and NAME.key.
    void issue(const std::string& name, const Leaf& leaf) const;
    [[nodiscard]] std::string path(const std::string& file) const { return folder_ + "/" + file; }

   private:
    /// Runs openssl; the test fails if it fails.
    void run(std::vector<std::string> words) const;

    std::string folder_;
    std::string authority_;
};

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
