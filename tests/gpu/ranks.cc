// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/ranks.h"

#include <regroup/cuda.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker_sdk/src/nccl/nccl_api.h"
#include "worker_sdk/src/net/socket.h"

extern char** environ;  // NOLINT: POSIX has it so

namespace regroup::gpu {
namespace {

/// Reads the output of the ranks until all have ended, or until the deadline.
void collect(std::vector<RunningRank>& ranks, double deadline) {
    while (true) {
        std::vector<pollfd> fds;
        for (const RunningRank& rank : ranks) {
            fds.push_back({.fd = rank.output, .events = POLLIN, .revents = 0});
        }
        bool any_open = false;
        for (const RunningRank& rank : ranks) {
            any_open = any_open || rank.output >= 0;
        }
        const double left = deadline - now_ms();
        if (!any_open || left <= 0) {
            return;
        }
        (void)::poll(fds.data(), fds.size(), static_cast<int>(left) + 1);
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            if (fds[i].revents == 0) {
                continue;
            }
            char text[4096];
            const ssize_t got = ::read(ranks[i].output, text, sizeof text);
            if (got <= 0) {
                ::close(std::exchange(ranks[i].output, -1));
            } else {
                ranks[i].end.output.append(text, static_cast<std::size_t>(got));
            }
        }
    }
}

void end_rank(RunningRank& rank) {
    rank.end.finished = rank.output < 0;
    if (!rank.end.finished) {
        ::kill(rank.pid, SIGKILL);
        ::close(rank.output);
    }
    int status = 0;
    while (::waitpid(rank.pid, &status, 0) < 0 && errno == EINTR) {
    }
    rank.end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    rank.end.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

}  // namespace

std::string free_port() {
    const UniqueFd socket = net::listen_on(net::SocketAddress::parse("127.0.0.1:0"));
    const std::string text = net::bound_address(socket).text();
    return text.substr(text.rfind(':') + 1);
}

std::vector<std::string> environment_of(std::uint32_t rank, std::uint32_t world_size,
                                        const std::string& port, int gpus) {
    std::vector<std::string> environment = {"RANK=" + std::to_string(rank),
                                            "WORLD_SIZE=" + std::to_string(world_size),
                                            "LOCAL_RANK=" + std::to_string(rank),
                                            "LOCAL_WORLD_SIZE=" + std::to_string(world_size),
                                            "MASTER_ADDR=127.0.0.1",
                                            "MASTER_PORT=" + port};
    if (static_cast<int>(world_size) > gpus) {
        environment.emplace_back("REGROUP_SHARE_GPUS=1");
    }
    return environment;
}

RunningRank start_rank(const std::string& mode, std::vector<std::string> environment) {
    for (char** variable = environ; *variable != nullptr; ++variable) {
        environment.emplace_back(*variable);
    }
    std::vector<char*> variables;
    for (std::string& variable : environment) {
        variables.push_back(variable.data());
    }
    variables.push_back(nullptr);
    std::string program = "gpu";
    std::string flag = "--rank";
    std::string mode_text = mode;
    char* arguments[] = {program.data(), flag.data(), mode_text.data(), nullptr};
    int pipe[2] = {-1, -1};
    if (::pipe2(pipe, O_CLOEXEC) != 0) {
        std::perror("pipe2");
        std::exit(2);
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
    RunningRank rank{.pid = -1, .output = pipe[0], .end = {}};
    const int error =
        ::posix_spawn(&rank.pid, "/proc/self/exe", &actions, nullptr, arguments, variables.data());
    posix_spawn_file_actions_destroy(&actions);
    ::close(pipe[1]);
    if (error != 0) {
        std::fprintf(stderr, "posix_spawn: error %d\n", error);
        std::exit(2);
    }
    return rank;
}

std::vector<RankEnd> await_ranks(std::vector<RunningRank> ranks, std::chrono::seconds limit) {
    collect(ranks, now_ms() + 1000.0 * static_cast<double>(limit.count()));
    std::vector<RankEnd> ends;
    for (RunningRank& rank : ranks) {
        end_rank(rank);
        ends.push_back(std::move(rank.end));
    }
    return ends;
}

std::vector<RankEnd> run_ranks(const std::string& mode, std::uint32_t world_size, int gpus,
                               std::chrono::seconds limit) {
    const std::string port = free_port();
    std::vector<RunningRank> ranks;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        ranks.push_back(start_rank(mode, environment_of(rank, world_size, port, gpus)));
    }
    return await_ranks(std::move(ranks), limit);
}

std::string rank_mode(int argc, char** argv) {
    return argc == 3 && std::string(argv[1]) == "--rank" ? argv[2] : "";
}

double now_ms() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(now).count();
}

int introduce(const char* program) {
    const cuda::Availability found = cuda::availability();
    if (!found.problem.empty()) {
        const bool has_gpu = found.device_count > 0;
        std::printf("%s: %s: %s\n", program, has_gpu ? "FAILED" : "skipped", found.problem.c_str());
        std::exit(has_gpu ? 1 : kSkipped);
    }
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    std::printf("%s: NCCL %s, driver for CUDA %d.%d, built with CUDA %d.%d\n", program,
                nccl::version_text(found.nccl_version).c_str(), driver / 1000, driver % 1000 / 10,
                CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    for (int device = 0; device < found.device_count; ++device) {
        cudaDeviceProp properties{};
        if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) {
            std::printf("  cuda:%d %s, compute capability %d.%d\n", device, properties.name,
                        properties.major, properties.minor);
        }
    }
    std::fflush(stdout);
    return found.device_count;
}

}  // namespace regroup::gpu
