// SPDX-License-Identifier: Apache-2.0
#include "tests/support/etcd_server.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <regex>
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

void EtcdServer::launch() {
    program_ = std::make_unique<Program>(ProgramSpec{command_, {}, {}});
}

void EtcdServer::start() {
    launch();
    EXPECT_TRUE(program_->prints("client requests on 127.0.0.1:")) << program_->output();
}

void EtcdServer::kill() {
    program_->signal(SIGKILL);
    EXPECT_TRUE(program_->wait());
}

namespace {

/// The last term in which it came to lead the others; 0 for none.
int term_led_by(EtcdServer& member) {
    const std::string log = member.program().output();
    const std::regex line("became leader at term (\\d+)");
    int term = 0;
    for (std::sregex_iterator at(log.begin(), log.end(), line), end; at != end; ++at) {
        term = std::max(term, std::stoi((*at)[1]));
    }
    return term;
}

}  // namespace

EtcdCluster::EtcdCluster(const std::string& program, const std::string& folder) {
    std::array<std::string, 3> peers;
    std::string all;
    for (std::size_t i = 0; i < peers.size(); ++i) {
        peers[i] = "http://127.0.0.1:" + std::to_string(unused_port());
        all += (i == 0 ? "m" : ",m") + std::to_string(i) + "=" + peers[i];
    }
    for (std::size_t i = 0; i < peers.size(); ++i) {
        const std::string name = "m" + std::to_string(i);
        members_.push_back(std::make_unique<EtcdServer>(
            program, folder + "/" + name, "http",
            std::vector<std::string>{"--name=" + name, "--initial-cluster=" + all,
                                     "--listen-peer-urls=" + peers[i],
                                     "--initial-advertise-peer-urls=" + peers[i]}));
    }
}

void EtcdCluster::start() {
    for (const auto& member : members_) {
        member->launch();
    }
    for (const auto& member : members_) {
        EXPECT_TRUE(member->program().prints("client requests on 127.0.0.1:"))
            << member->program().output();
    }
}

std::string EtcdCluster::endpoints() const {
    std::string text;
    for (const auto& member : members_) {
        text += (text.empty() ? "" : ",") + ("127.0.0.1:" + std::to_string(member->port()));
    }
    return text;
}

void EtcdCluster::kill_leader() {
    const auto leader = std::ranges::max_element(
        members_, {}, [](const auto& member) { return term_led_by(*member); });
    EXPECT_GT(term_led_by(**leader), 0);
    (*leader)->kill();
}

}  // namespace regroup::testing
