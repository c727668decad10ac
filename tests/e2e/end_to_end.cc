// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/end_to_end.h"

#include <arpa/inet.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <netinet/in.h>
#include <regex>
#include <sys/socket.h>
#include <unistd.h>

namespace regroup::testing {

namespace {

namespace fs = std::filesystem;

Mark read_mark(const std::string& path) {
    Mark result;
    for (const std::string& line : lines_of(read_file(path))) {
        const std::size_t equals = line.find('=');
        if (equals != std::string::npos) {
            result.emplace(line.substr(0, equals), line.substr(equals + 1));
        }
    }
    return result;
}

}  // namespace

Words operator+(Words first, const Words& more) {
    first.insert(first.end(), more.begin(), more.end());
    return first;
}

std::string regroup_program() {
    const char* given = std::getenv("REGROUP_BINARY");
    return given != nullptr ? given : REGROUP_PROGRAM;
}

std::string probe_program() {
    return PROBE_PROGRAM;
}

std::string elastic_probe_program() {
    return ELASTIC_PROBE_PROGRAM;
}

std::string collective_probe_program() {
    return COLLECTIVE_PROBE_PROGRAM;
}

std::string byte_lm_program() {
    return BYTE_LM_PROGRAM;
}

pid_t pid_of(const Mark& mark) {
    const auto pid = mark.find("pid");
    const pid_t number = pid == mark.end() ? 0 : std::atoi(pid->second.c_str());
    // Tests send it signals. Those for 0 and -1 would reach this process and all others.
    EXPECT_GT(number, 1) << "a worker has written no pid";
    return number > 1 ? number : std::numeric_limits<pid_t>::max();
}

Listener::Listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(::listen(fd_, SOMAXCONN), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port_ = ntohs(address.sin_port);
}

Listener::~Listener() {
    ::close(fd_);
}

Rendezvous::Rendezvous(const Words& flags)
    : program_({Words{regroup_program(), "serve"} + flags, {}, ""}) {
    EXPECT_TRUE(program_.prints("listening on ")) << program_.output();
    const std::string output = program_.output();
    std::smatch match;
    if (std::regex_search(output, match, std::regex("listening on \\S*:(\\d+)\n"))) {
        port_ = static_cast<std::uint16_t>(std::stoi(match[1]));
    }
}

std::string Rendezvous::endpoint() const {
    return "127.0.0.1:" + std::to_string(port_);
}

Program EndToEnd::run(const Words& arguments, const Words& environment) const {
    return Program({Words{regroup_program(), "run"} + arguments,
                    Words{"PROBE_DIR=" + folder()} + environment, folder()});
}

std::unique_ptr<Program> EndToEnd::start_run(const Words& arguments,
                                             const Words& environment) const {
    return std::make_unique<Program>(ProgramSpec{Words{regroup_program(), "run"} + arguments,
                                                 Words{"PROBE_DIR=" + folder()} + environment,
                                                 folder()});
}

Program EndToEnd::run_probe(const Words& flags, const Words& steps,
                            const Words& environment) const {
    return run(flags + Words{probe_program()} + steps, environment);
}

Words EndToEnd::node(unsigned number, const std::string& nodes, const std::string& endpoint) {
    return {"--nnodes=" + nodes, "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint,
            "--rdzv-id=job", "--local-addr=127.0.0." + std::to_string(number + 1)};
}

std::map<std::uint64_t, std::map<std::uint32_t, Mark>> EndToEnd::marks(
    const std::string& name) const {
    std::map<std::uint64_t, std::map<std::uint32_t, Mark>> result;
    const std::regex pattern(name + "\\.(\\d+)\\.(\\d+)");
    for (const auto& entry : fs::directory_iterator(folder())) {
        const std::string file = entry.path().filename();
        std::smatch match;
        if (std::regex_match(file, match, pattern)) {
            const auto rank = static_cast<std::uint32_t>(std::stoul(match[2]));
            result[std::stoull(match[1])].emplace(rank, read_mark(entry.path()));
        }
    }
    return result;
}

std::map<std::uint32_t, Mark> EndToEnd::last_marks(const std::string& name) const {
    const auto all = marks(name);
    return all.empty() ? std::map<std::uint32_t, Mark>() : all.rbegin()->second;
}

Mark EndToEnd::mark(const std::string& name, std::uint64_t round, std::uint32_t rank) const {
    return read_mark(folder() + "/" + name + "." + std::to_string(round) + "." +
                     std::to_string(rank));
}

std::map<std::uint32_t, Mark> EndToEnd::await_marks(const std::string& name, std::size_t count,
                                                    std::uint64_t round_min) const {
    std::map<std::uint32_t, Mark> result;
    eventually([&] {
        for (const auto& [round, ranks] : marks(name)) {
            if (round >= round_min && ranks.size() == count) {
                result = ranks;
            }
        }
        return !result.empty();
    });
    return result;
}

std::uint64_t EndToEnd::step() const {
    const std::string text = read_file(folder() + "/step");
    return text.empty() ? 0 : std::stoull(text);
}

bool EndToEnd::goes_on() const {
    const std::uint64_t before = step();
    return eventually([&] { return step() > before + 3; });
}

void EndToEnd::release(const std::string& name) const {
    std::ofstream(folder() + "/" + name) << "go\n";
}

}  // namespace regroup::testing
