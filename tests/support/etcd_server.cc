// SPDX-License-Identifier: Apache-2.0
#include "tests/support/etcd_server.h"

#include <csignal>
#include <utility>

#include <gtest/gtest.h>

namespace regroup::testing {

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
