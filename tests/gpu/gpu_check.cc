// SPDX-License-Identifier: Apache-2.0
// The program of `make test-gpu`: a table of checks of the "nccl" back end on this machine's GPUs.
// If there is only one GPU, two ranks share it, each as if on its own host, over loopback TCP.
#include <regroup/error.h>

#include <array>
#include <cstdio>
#include <sstream>

#include "tests/gpu/checks.h"
#include "tests/gpu/ranks.h"

namespace regroup::gpu {
namespace {

struct Session {
    const char* name = "";
    bool (*run)(const Context& context) = nullptr;
    bool kills_rank_1 = false;
};

constexpr std::array kSessions = {
    Session{"collectives", check_collectives},
    Session{"operations", check_operations},
    Session{"graph", check_graph},
    Session{"data-parallel", check_data_parallel},
    Session{"abort", check_abort},
    Session{"kill", check_kill, true},
    Session{"deadline", check_deadline},
};

int be_rank(const std::string& mode) {
    for (const Session& session : kSessions) {
        if (session.name == mode) {
            try {
                return session.run(Context::from_environment()) ? 0 : 1;
            } catch (const std::exception& error) {
                std::printf("FAIL 0 session: %s\n", error.what());
                return 1;
            }
        }
    }
    return 2;
}

/// Prints the lines of a rank's output as rows of the table; returns false if one is a failure.
bool print_rows(const Session& session, std::size_t rank, const std::string& output) {
    bool good = true;
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string result;
        double ms = 0;
        words >> result;
        if (result != "pass" && result != "FAIL") {
            std::printf("  %-14s        %s\n", "", line.c_str());
            continue;
        }
        words >> ms;
        std::string name;
        std::getline(words, name);
        good = good && result == "pass";
        std::printf("  %-14s rank %zu %-4s %9.1f ms %s\n", session.name, rank, result.c_str(), ms,
                    name.c_str());
    }
    return good;
}

bool run_session(const Session& session, int gpus) {
    constexpr std::uint32_t kRanks = 2;
    constexpr std::chrono::seconds kLimit{120};
    const std::vector<RankEnd> ends = run_ranks(session.name, kRanks, gpus, kLimit);
    bool good = true;
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
        const RankEnd& end = ends[rank];
        good &= print_rows(session, rank, end.output);
        if (session.kills_rank_1 && rank == 1) {
            continue;
        }
        if (!end.finished || end.signal != 0 || end.code != 0) {
            good = false;
            std::printf("  %-14s rank %zu FAIL %s\n", session.name, rank,
                        !end.finished ? "did not end within 120 s"
                        : end.signal != 0
                            ? ("killed by signal " + std::to_string(end.signal)).c_str()
                            : ("ended with " + std::to_string(end.code)).c_str());
        }
    }
    std::fflush(stdout);
    return good;
}

}  // namespace

bool report(const Context& context, const std::string& name, const std::function<void()>& body) {
    const double start = now_ms();
    std::string problem;
    try {
        body();
    } catch (const std::exception& error) {
        problem = error.what();
    }
    const double took = now_ms() - start;
    if (!problem.empty()) {
        std::printf("FAIL %.1f %s: %s\n", took, name.c_str(), problem.c_str());
    } else if (context.rank == 0) {
        std::printf("pass %.1f %s\n", took, name.c_str());
    }
    std::fflush(stdout);
    return problem.empty();
}

void require(bool holds, const std::string& what) {
    if (!holds) {
        throw Error(Errc::system, "wrong: " + what);
    }
}

}  // namespace regroup::gpu

int main(int argc, char** argv) {
    using namespace regroup::gpu;
    const std::string mode = rank_mode(argc, argv);
    if (!mode.empty()) {
        return be_rank(mode);
    }
    const int gpus = introduce("gpu_check");
    bool good = true;
    for (const Session& session : kSessions) {
        good &= run_session(session, gpus);
    }
    std::printf("gpu_check: %s\n", good ? "all passed" : "FAILED");
    return good ? 0 : 1;
}
