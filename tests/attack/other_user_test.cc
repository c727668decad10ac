// SPDX-License-Identifier: Apache-2.0
//
// Another user of a host on which a node of the job runs: all ports and sockets that are open
// there, the files of the job, and its processes.
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "rendezvous/store/store_wire.h"
#include "tests/attack/attack.h"
#include "tests/support/matchers.h"

namespace regroup::attack {
namespace {

using security::Token;
using testing::read_file;

constexpr std::size_t kOtherUserMemoryMax = std::size_t{128} << 20U;

/// The answer of a store: the number of its keys, after a key was set.
std::string store_requests() {
    std::string bytes;
    store::encode({store::Opcode::validate, {}, store::kMagic}, bytes);
    store::encode({store::Opcode::set, {"stolen", "value"}, 0}, bytes);
    store::encode({store::Opcode::num_keys, {}, 0}, bytes);
    store::encode({store::Opcode::list_keys, {}, 0}, bytes);
    return bytes;
}

/// The nodes are two hosts, or one host: there the store of a round needs no TLS.
class OtherUser : public ::testing::TestWithParam<bool> {
   protected:
    void SetUp() override {
        if (::geteuid() != 0) {
            GTEST_SKIP() << "another user needs root";
        }
        if (GetParam()) {
            auto laid = chaos::Network::lay(2);
            if (!laid) {
                GTEST_SKIP() << laid.error().detail;
            }
            network_ = std::make_unique<chaos::Network>(*std::move(laid));
        }
        victim_ = std::make_unique<Victim>(Victim::Options{network_.get()});
        // The folder of this test does not protect the job's files.
        ::chmod(victim_->folder().c_str(), 0755);
        processes_ = victim_->node(0).family();
        if (!network_) {
            for (const pid_t pid : victim_->node(1).family()) {
                processes_.push_back(pid);
            }
        }
        processes_.push_back(victim_->daemon_pid());
    }
    void TearDown() override {
        if (victim_) {
            victim_->finish(kOtherUserMemoryMax);
        }
    }

    void endure(const std::function<std::string(Siege&)>& attack) const {
        victim_->endure(kFirstHost, kOtherUser, attack);
    }
    [[nodiscard]] std::vector<Target> ports() const {
        const std::string host = network_ ? chaos::Network::address(0) : "127.0.0.1";
        std::vector<Target> found;
        for (const pid_t pid : processes_) {
            for (const Target& target : listeners_of(pid, host, true)) {
                found.push_back(target);
            }
        }
        return found;
    }

    std::unique_ptr<chaos::Network> network_;
    std::unique_ptr<Victim> victim_;
    std::vector<pid_t> processes_;
};
INSTANTIATE_TEST_SUITE_P(Job, OtherUser, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "OfTwoHosts" : "OfOneHost"; });

TEST_P(OtherUser, NoPortGivesOrTakesAnything) {
    const std::vector<Target> targets = ports();
    // The daemon, the stores that the nodes offer or serve, and the workers' groups.
    ASSERT_GE(targets.size(), 4U);
    endure([&](Siege& siege) {
        std::string failed;
        std::string garbage;
        for (std::size_t i = 0; i < 2000; ++i) {
            garbage += static_cast<char>(i * 7919 >> 3U);
        }
        for (const Target& target : targets) {
            if (siege.dial(target) < 0) {
                failed += target.text() + " cannot be reached, so nothing was tried; ";
            }
            for (int i = 0; i < 200; ++i) {
                siege.dial(target, i % 2 == 0 ? "" : garbage);
            }
            const int store = siege.dial(target, store_requests());
            const std::string answer = Siege::receive(store, 16, milliseconds(300));
            if (!answer.empty()) {
                failed += target.text() + " answers a store client; ";
            }
            for (const rendezvous::FromAgent& message :
                 {rendezvous::FromAgent(join_of("victim", "node-c", 2, 2)),
                  rendezvous::FromAgent(stop_of("victim")),
                  rendezvous::FromAgent(logs_of("victim"))}) {
                Caller plain(siege, target);
                plain.say(message);
                const auto said = plain.next(milliseconds(300));
                if (said && !std::holds_alternative<rendezvous::Refused>(*said)) {
                    failed += target.text() + " obeys a plain message; ";
                }
            }
            const Token token = Token::generate();
            const security::Tls client = security::Tls::client(token.key(), "regroup store");
            Caller secured(siege, target);
            if (secured.secure(client, milliseconds(500)) && secured.send("x") &&
                secured.next(milliseconds(300))) {
                failed += target.text() + " accepts another key; ";
            }
        }
        while (siege.goes_on()) {
            for (const Target& target : targets) {
                siege.dial(target, garbage.substr(0, 100));
            }
        }
        return failed;
    });
    EXPECT_THAT(victim_->daemon_log(), Not(HasSubstr("asked for by")));
}

TEST_P(OtherUser, NoLinkBetweenAgentAndWorkerLetsItIn) {
    std::vector<std::string> names;
    for (const pid_t pid : processes_) {
        for (const std::string& line :
             testing::lines_of(read_file("/proc/" + std::to_string(pid) + "/net/unix"))) {
            const std::size_t at = line.find("@regroup-");
            if (at != std::string::npos && network_) {
                names.push_back(line.substr(at + 1));
            }
        }
        // Without a network of its own, other jobs are in that table, too.
        const std::string environment = read_file("/proc/" + std::to_string(pid) + "/environ");
        const std::string variable = "REGROUP_AGENT_SOCKET=";
        const std::size_t at = environment.find(variable);
        if (at != std::string::npos) {
            std::string name = environment.c_str() + at + variable.size();
            names.push_back(name.substr(name.find("regroup-")));
        }
    }
    ASSERT_THAT(names, Not(IsEmpty()));
    endure([&](Siege& /*siege*/) {
        std::string failed;
        std::size_t reached = 0;
        for (int i = 0; i < 300; ++i) {
            const std::string& name = names[static_cast<std::size_t>(i) % names.size()];
            sockaddr_un address{};
            address.sun_family = AF_UNIX;
            name.copy(address.sun_path + 1, sizeof address.sun_path - 2);
            const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
            const auto bytes =
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
            if (::connect(fd, reinterpret_cast<sockaddr*>(&address), bytes) != 0) {
                continue;
            }
            ++reached;
            if (i % 3 != 0) {
                Siege::send(fd, i % 3 == 1 ? "garbage" : std::string(3000, '\0'));
            }
            ::fcntl(fd, F_SETFL, 0);
            const std::string answer = Siege::receive(fd, 1, i < 3 ? seconds(5) : milliseconds(50));
            if (!answer.empty()) {
                failed = "an agent answers another user";
            }
            if (i >= 250) {
                ::close(fd);
            }
        }
        if (reached == 0) {
            failed = "no link was reached, so nothing was tried";
        }
        return failed;
    });
}

TEST_P(OtherUser, NoFileOfTheJobIsWritableAndNoSecretReadable) {
    // The ledger of recoveries appears with the first one.
    const std::uint64_t round = victim_->state().round;
    victim_->kill_worker(round, 1);
    ASSERT_TRUE(victim_->trains_in_round(round + 1));
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(victim_->folder())) {
        files.push_back(entry.path());
    }
    std::vector<std::string> processes;
    for (const pid_t pid : processes_) {
        processes.push_back("/proc/" + std::to_string(pid));
    }
    std::size_t secrets = 0;
    for (const auto& path : files) {
        secrets += path.string().find("/state") != std::string::npos ||
                           path.extension() == ".jsonl" || path.filename() == "token"
                       ? 1
                       : 0;
    }
    EXPECT_GE(secrets, 4U);  // The token, the folder and the file of the journal, the ledger.
    endure([&](Siege&) {
        std::string failed;
        for (const auto& path : files) {
            const std::string text = path.string();
            const bool is_secret = text.find("/state") != std::string::npos ||
                                   path.extension() == ".jsonl" || path.filename() == "token";
            if (is_secret && ::access(text.c_str(), R_OK) == 0) {
                failed += text + " is readable; ";
            }
            if (::access(text.c_str(), W_OK) == 0) {
                failed += text + " is writable; ";
            }
        }
        // The secrets of the round are in the environment and the memory of the processes.
        for (const std::string& process : processes) {
            for (const char* part : {"/environ", "/mem", "/maps"}) {
                if (::open((process + part).c_str(), O_RDONLY | O_CLOEXEC) >= 0 &&
                    !read_file(process + part).empty()) {
                    failed += process + part + " is readable; ";
                }
            }
            std::error_code error;
            for (const auto& fd : std::filesystem::directory_iterator(process + "/fd", error)) {
                failed += fd.path().string() + " is visible; ";
            }
        }
        return failed;
    });
}

TEST_P(OtherUser, NoSharedMemoryIsReachableByItsName) {
    std::vector<std::string> names;
    for (const pid_t pid : processes_) {
        for (const std::string& line :
             testing::lines_of(read_file("/proc/" + std::to_string(pid) + "/maps"))) {
            const std::size_t at = line.find("/dev/shm/");
            if (at != std::string::npos) {
                names.push_back(line.substr(at));
            }
        }
    }
    endure([&](Siege&) {
        std::string failed;
        for (const std::string& name : names) {
            if (::open(name.c_str(), O_RDONLY | O_CLOEXEC) >= 0) {
                failed += name + " can be opened; ";
            }
        }
        return failed;
    });
}

}  // namespace
}  // namespace regroup::attack
