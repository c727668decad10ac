// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

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

}  // namespace regroup::testing
