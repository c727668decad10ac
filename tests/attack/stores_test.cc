// SPDX-License-Identifier: Apache-2.0
//
// A process of the job's user reaches its stores: the one of the round, which an agent serves, and
// the one for torchrun's launchers in the daemon. It is let in, and must not keep others waiting or
// use up the memory of the process that serves it.
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/store/store_limits.h"
#include "rendezvous/store/store_wire.h"
#include "tests/attack/attack.h"

namespace regroup::attack {
namespace {

using store::Opcode;
using store::Request;

/// The memory of clients has a limit of 512 MiB, and the test stores a quarter of that.
constexpr std::size_t kStoresMemoryMax = std::size_t{1} << 30U;

std::string bytes_of(const Request& request) {
    std::string bytes;
    store::encode(request, bytes);
    return bytes;
}
std::string greeting() {
    return bytes_of({Opcode::validate, {}, store::kMagic});
}

/// Sends all of it, unless the server does not read for a second or has closed the connection.
bool send_all(int fd, std::string_view bytes) {
    const timeval limit{1, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    while (!bytes.empty()) {
        const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) {
            return false;
        }
        bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
}

class Stores : public ::testing::Test {
   protected:
    static void SetUpTestSuite() {
        victim_ = std::make_unique<Victim>(Victim::Options{nullptr, {"--serve-torchrun"}, {}});
        servers_ = {victim_->daemon_pid()};
        for (const std::size_t node : {0U, 1U}) {
            for (const pid_t pid : victim_->node(node).family()) {
                servers_.push_back(pid);
            }
        }
        targets_ = {victim_->daemon()};
        // The other sockets are offers for later rounds, and answer nobody yet.
        for (const pid_t pid : servers_) {
            for (const Target& target : listeners_of(pid, "127.0.0.1", true)) {
                if (target.port != victim_->daemon().port && serves_a_store(target)) {
                    targets_.push_back(target);
                }
            }
        }
    }
    static void TearDownTestSuite() {
        for (const pid_t pid : servers_) {
            EXPECT_TRUE(has_sanitizer() || peak_of(pid) < kStoresMemoryMax) << peak_of(pid);
        }
        victim_->finish(kStoresMemoryMax);
        victim_.reset();
    }
    void SetUp() override { ASSERT_GE(targets_.size(), 2U); }

    static bool serves_a_store(const Target& target) {
        Siege siege;
        const int fd = siege.dial(target, greeting() + bytes_of({Opcode::num_keys, {}, 0}));
        const std::string answer = Siege::receive(fd, 8, milliseconds(500));
        return answer.size() == 8;
    }
    /// Each attack goes to each store. An honest client must be served meanwhile.
    static void endure(const std::function<void(Siege&, const Target&)>& attack) {
        for (const Target& target : targets_) {
            SCOPED_TRACE(target.text());
            victim_->endure(std::nullopt, ::geteuid(), [&](Siege& siege) -> std::string {
                attack(siege, target);
                while (siege.goes_on()) {
                    // Closed after its answer: ten thousand open ones would leave the victim no
                    // place.
                    Siege client;
                    const int honest = client.dial(
                        target, greeting() + bytes_of({Opcode::set, {"honest", "yes"}, 0}) +
                                    bytes_of({Opcode::get, {"honest"}, 0}));
                    std::string wanted;
                    store::append_text(wanted, "yes");
                    if (Siege::receive(honest, wanted.size(), answer_limit()) != wanted) {
                        return "an honest client is not served";
                    }
                }
                return "";
            });
        }
    }

    static inline std::unique_ptr<Victim> victim_;
    static inline std::vector<pid_t> servers_;
    static inline std::vector<Target> targets_;
};

TEST_F(Stores, WaitsForOneNameManyTimesAreBounded) {
    const std::size_t keys = store::Limits().keys_max;
    const std::string wait = bytes_of({Opcode::wait, std::vector<std::string>(keys, "never"), 0});
    const std::string end =
        bytes_of({Opcode::set, {"never", "now"}, 0}) + bytes_of({Opcode::delete_key, {"never"}, 0});
    endure([&](Siege& siege, const Target& target) {
        for (int round = 0; round < 3; ++round) {
            for (int i = 0; i < 20; ++i) {
                send_all(siege.dial(target, greeting()), wait);
            }
            send_all(siege.dial(target, greeting()), end);
        }
    });
}

TEST_F(Stores, AnswersThatNobodyReadsAreBounded) {
    const std::string value(std::size_t{4} << 20U, 'v');
    std::string gets;
    for (int i = 0; i < 1000; ++i) {
        gets += bytes_of({Opcode::get, {"large"}, 0});
    }
    endure([&](Siege& siege, const Target& target) {
        const int writer = siege.dial(target, greeting());
        send_all(writer, bytes_of({Opcode::set, {"large", value}, 0}));
        for (int i = 0; i < 30; ++i) {
            send_all(siege.dial(target, greeting()), gets);
        }
        send_all(writer, bytes_of({Opcode::delete_key, {"large"}, 0}));
    });
}

TEST_F(Stores, QueuesWithLongNamesAreCharged) {
    const std::string key(store::Limits().key_bytes_max - 8, 'k');
    std::string pushes;
    for (int i = 0; i < 5000; ++i) {
        pushes += bytes_of({Opcode::queue_push, {key + std::to_string(i), ""}, 0});
    }
    endure([&](Siege& siege, const Target& target) {
        for (int i = 0; i < 3; ++i) {
            send_all(siege.dial(target, greeting()), pushes);
        }
    });
}

TEST_F(Stores, HalfRequestsAndImpossibleLengthsAreBounded) {
    std::string half = bytes_of({Opcode::set, {"k", std::string(1000, 'v')}, 0});
    half.resize(half.size() - 1);
    std::string huge = bytes_of({Opcode::set, {"k", ""}, 0});
    huge.resize(huge.size() - 8);
    store::append_i64(huge, -1);
    std::string many = bytes_of({Opcode::wait, {}, 0});
    many.resize(1);
    store::append_i64(many, std::int64_t{1} << 40U);
    endure([&](Siege& siege, const Target& target) {
        for (int i = 0; i < 300; ++i) {
            for (const std::string& bytes : {half, huge, many}) {
                siege.dial(target, greeting() + bytes);
            }
        }
    });
}

}  // namespace
}  // namespace regroup::attack
