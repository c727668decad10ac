// SPDX-License-Identifier: Apache-2.0
#include "tests/support/etcd_server.h"

#include <csignal>
#include <fstream>
#include <utility>

#include <gtest/gtest.h>

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

EtcdServer::EtcdServer(std::string program, std::string folder, const std::string& scheme,
                       const std::vector<std::string>& flags)
    : port_(unused_port()) {
    const std::string client = scheme + "://127.0.0.1:" + std::to_string(port_);
    const std::string peer = "http://127.0.0.1:" + std::to_string(unused_port());
    command_ = {std::move(program),
                "--data-dir",
                std::move(folder),
                "--listen-client-urls",
                client,
                "--advertise-client-urls",
                client,
                "--listen-peer-urls",
                peer,
                "--initial-advertise-peer-urls",
                peer,
                "--initial-cluster",
                "default=" + peer,
                "--unsafe-no-fsync"};
    command_.insert(command_.end(), flags.begin(), flags.end());
}

void EtcdServer::start() {
    program_ = std::make_unique<Program>(ProgramSpec{command_, {}, {}});
    EXPECT_TRUE(program_->prints("client requests on 127.0.0.1:")) << program_->output();
}

void EtcdServer::kill() {
    program_->signal(SIGKILL);
    EXPECT_TRUE(program_->wait());
}

}  // namespace regroup::testing
