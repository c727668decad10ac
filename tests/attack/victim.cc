// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <regex>

#include "tests/attack/attack.h"

namespace regroup::attack {
namespace {

using testing::eventually;
using testing::Program;
using testing::ProgramSpec;

constexpr std::uint16_t kPort = 29400;
/// The steps that a victim must take while an attack is in full force.
constexpr std::uint64_t kStepsUnderAttack = 50;

const char* const kNames[] = {"node-a", "node-b", "stranger"};

}  // namespace

Victim::Victim(Options options)
    : options_(std::move(options)), token_(security::Token::generate()) {
    EXPECT_TRUE(security::write_token(token_file(), *token_));
    serve();
    for (const std::size_t host : {kFirstHost, kSecondHost}) {
        const std::string address = options_.network != nullptr
                                        ? chaos::Network::address(host)
                                        : "127.0.0." + std::to_string(host + 2);
        nodes_.push_back(start(
            host, Words{testing::regroup_program(), "run", "--nnodes=2", "--rdzv-backend=c10d",
                        "--rdzv-endpoint=" + daemon_.text(), "--rdzv-id=victim",
                        "--local-addr=" + address, "--token-file=" + token_file(),
                        "--nproc-per-node=1", "--max-restarts=9"} +
                      options_.run_flags + Words{testing::elastic_probe_program(), "beat"}));
    }
    EXPECT_TRUE(trains_in_round(1)) << nodes_[0]->output() << nodes_[1]->output();
}

void Victim::serve() {
    const bool is_first = daemon_.port == 0;
    const std::string host =
        options_.network != nullptr ? chaos::Network::address(kFirstHost) : "127.0.0.1";
    const std::uint16_t port = options_.network != nullptr ? kPort : daemon_.port;
    serve_ = start(kFirstHost, Words{testing::regroup_program(), "serve",
                                     "--listen=" + host + ":" + std::to_string(port),
                                     "--token-file=" + token_file(), "--state=" + state_folder()} +
                                   options_.serve_flags);
    EXPECT_TRUE(serve_->prints("listening on ")) << serve_->output();
    if (is_first) {
        const std::string output = serve_->output();
        std::smatch match;
        EXPECT_TRUE(std::regex_search(output, match, std::regex("listening on \\S*:(\\d+)\n")));
        daemon_ = {host, static_cast<std::uint16_t>(std::stoi(match[1]))};
    }
}

std::unique_ptr<Program> Victim::start(std::size_t host, const Words& command) const {
    std::unique_ptr<Program> program;
    const auto start_here = [&] {
        program =
            std::make_unique<Program>(ProgramSpec{command, {"PROBE_DIR=" + folder()}, folder()});
    };
    if (options_.network != nullptr) {
        options_.network->within(host, kNames[host], start_here);
    } else {
        start_here();
    }
    return program;
}

std::unique_ptr<Program> Victim::operate(const Words& words) const {
    return start(kSecondHost,
                 Words{testing::regroup_program()} + words +
                     Words{"--endpoint=" + daemon_.text(), "--token-file=" + token_file()});
}

nlohmann::json Victim::status(const Words& flags) const {
    const auto program = operate(
        Words{"status", "--json", "--timeout=" + std::to_string(answer_limit() / seconds(1))} +
        flags);
    const int code = program->wait().value_or(-1);
    if (code == 1) {  // The daemon answers that there is no such job, or refuses.
        return {{"refused", program->output()}};
    }
    const nlohmann::json answer = nlohmann::json::parse(program->output(), nullptr, false);
    EXPECT_TRUE(code == 0 && answer.is_object()) << code << ": " << program->output();
    return answer.is_object() ? answer : nlohmann::json::object();
}

Victim::State Victim::state() const {
    // Without the name, the jobs of others could leave no room for it in the answer.
    const nlohmann::json answer = status({"--job=victim"});
    State state;
    state.refused = answer.value("refused", "");
    for (const auto& job : answer.value("jobs", nlohmann::json::array())) {
        state.phase = job["phase"];
        state.round = job["round"];
        state.step = job["step"];
        state.world_size = job["world_size"];
    }
    return state;
}

std::uint64_t Victim::step() const {
    const std::string text = testing::read_file(folder() + "/step");
    return text.empty() ? 0 : std::stoull(text);
}

bool Victim::takes_steps(std::uint64_t count) const {
    const std::uint64_t wanted = step() + count;
    return eventually([&] { return step() >= wanted; });
}

bool Victim::trains_in_round(std::uint64_t round) const {
    return eventually([&] {
               const State now = state();
               return now.round >= round && now.phase == "training" && now.world_size == 2;
           }) &&
           takes_steps(2);
}

std::size_t peak_of(pid_t pid) {
    const std::string status = testing::read_file("/proc/" + std::to_string(pid) + "/status");
    std::smatch match;
    EXPECT_TRUE(std::regex_search(status, match, std::regex("VmHWM:\\s*(\\d+) kB")));
    return match.empty() ? 0 : std::stoull(match[1]) * 1024;
}

void Victim::kill_worker(std::uint64_t round, std::uint32_t rank) const {
    const std::string mark =
        testing::read_file(folder() + "/up." + std::to_string(round) + "." + std::to_string(rank));
    const pid_t pid = mark.starts_with("pid=") ? std::atoi(mark.c_str() + 4) : 0;
    // Never a process group, and never all processes of this machine.
    ASSERT_GT(pid, 1) << "rank " << rank << " of round " << round << " is not known";
    ::kill(pid, SIGKILL);
}

void Victim::endure(std::optional<std::size_t> host, uid_t user,
                    const std::function<std::string(Siege&)>& attack) const {
    const State before = state();
    ASSERT_EQ(before.phase, "training");
    Attacker attacker(options_.network, host, user, attack);
    ASSERT_TRUE(attacker.is_in_force());
    EXPECT_TRUE(takes_steps(kStepsUnderAttack)) << "the steps stand still";
    const State meanwhile = state();
    EXPECT_EQ(meanwhile.round, before.round) << meanwhile.refused;
    EXPECT_EQ(attacker.end(), "");
    EXPECT_TRUE(takes_steps(2)) << "the steps stand still after the attack";
    const State after = state();
    EXPECT_EQ(after.round, before.round) << after.refused;
    EXPECT_EQ(after.phase, "training");
    EXPECT_EQ(after.world_size, 2U);
}

void Victim::restart_daemon() {
    serve_->signal(SIGKILL);
    serve_->wait();
    serve();
}

void Victim::finish(std::size_t daemon_bytes_max) {
    EXPECT_TRUE(has_sanitizer() || daemon_peak() < daemon_bytes_max) << daemon_peak();
    std::ofstream(folder() + "/finish") << "go\n";
    for (const auto& node : nodes_) {
        EXPECT_EQ(node->wait(), 0) << node->output();
    }
}

}  // namespace regroup::attack
