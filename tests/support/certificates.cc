// SPDX-License-Identifier: Apache-2.0
#include "tests/support/certificates.h"

#include <fstream>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/program.h"

namespace regroup::testing {

CertificateMaker::CertificateMaker(std::string folder, const std::string& name)
    : folder_(std::move(folder)), authority_(name) {
    run({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-keyout", path(name + ".key"), "-out", path(name + ".crt"), "-subj", "/CN=" + name,
         "-days", "2"});
}

void CertificateMaker::issue(const std::string& name, const Leaf& leaf) const {
    run({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
         path(name + ".key"), "-out", path(name + ".csr"), "-subj", leaf.subject});
    // etcd's gateway shows this certificate to etcd itself, as a client.
    std::ofstream(path(name + ".ext"))
        << "subjectAltName=" << leaf.alternatives << "\nextendedKeyUsage=serverAuth,clientAuth\n";
    run({"x509", "-req", "-in", path(name + ".csr"), "-CA", path(authority_ + ".crt"), "-CAkey",
         path(authority_ + ".key"), "-CAcreateserial", "-days", leaf.expired ? "-1" : "2",
         "-extfile", path(name + ".ext"), "-out", path(name + ".crt")});
}

void CertificateMaker::run(std::vector<std::string> words) const {
    words.insert(words.begin(), {"/usr/bin/env", "openssl"});
    Program openssl({std::move(words), {}, {}});
    EXPECT_EQ(openssl.wait(), 0) << openssl.output();
}

}  // namespace regroup::testing
