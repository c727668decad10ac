// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/peers.h"

#include <cstdio>

#include "tests/bench/timed_run.h"
#include "tests/support/program.h"

namespace regroup::bench {

namespace {

constexpr const char* kMonitor = "--monitor_interval=0.1";
// The fastest settings for jobs that may lose nodes. All are whole numbers, the first two in
// seconds. A node is lost after this number of intervals without a heartbeat. With 1, live nodes
// are lost, too, and no rendezvous completes. Jobs of fixed size do not use these settings: with so
// many heartbeats, 16 nodes on two cores did not complete a rendezvous.
constexpr const char* kRendezvous =
    "--rdzv_conf=last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=2";

// The version of PyTorch in `python`, or nothing.
std::optional<std::string> torch_version(const std::string& python) {
    constexpr auto kLimit = std::chrono::minutes(5);  // Enough for a busy machine.
    testing::Program question(
        {{python, "-c", "import torch.distributed.run as r; print(r.torch.__version__)"}, {}, ""});
    if (question.wait(kLimit) != 0) {
        return std::nullopt;
    }
    const auto lines = testing::lines_of(question.output());
    const std::string text = lines.empty() ? "unknown" : lines.back();
    return text.substr(0, text.find('+'));
}

}  // namespace

std::optional<Torchrun> find_torchrun() {
    // Debian's torch belongs to Debian's Python, which may not be the first one in PATH.
    for (const std::string python : {REGROUP_PYTORCH_CURRENT, REGROUP_PYTORCH_DEBIAN, "python3"}) {
        const auto path = find_program(python);
        const auto version = path ? torch_version(*path) : std::nullopt;
        if (version) {
            std::printf(
                "  torchrun is that of PyTorch %s, with %s\n  and, where nodes may be lost, %s\n",
                version->c_str(), kMonitor, kRendezvous);
            return Torchrun{{*path, "-m", "torch.distributed.run"}, *version};
        }
    }
    std::printf("  no Python here has torch: torchrun is left out\n");
    return std::nullopt;
}

std::vector<std::string> torchrun_command(const Torchrun& torchrun, const std::string& nodes,
                                          int workers, int restarts, std::uint16_t port,
                                          const std::string& log_dir,
                                          const std::vector<std::string>& program) {
    std::vector<std::string> command = torchrun.command;
    for (const std::string& flag :
         {"--nnodes=" + nodes, "--nproc_per_node=" + std::to_string(workers),
          "--max_restarts=" + std::to_string(restarts), std::string(kMonitor),
          std::string("--rdzv_backend=c10d"), "--rdzv_endpoint=127.0.0.1:" + std::to_string(port),
          std::string("--rdzv_id=bench"), "--log_dir=" + log_dir, std::string("--no_python")}) {
        command.push_back(flag);
    }
    if (nodes.find(':') != std::string::npos) {
        command.emplace_back(kRendezvous);
    }
    if (torchrun.version.starts_with("1.")) {
        // Without these, Debian's version fails with an exception under Debian's Python.
        command.insert(command.end(), {"--redirects=1", "--tee=1"});
    }
    command.insert(command.end(), program.begin(), program.end());
    return command;
}

std::optional<std::vector<std::string>> find_mpirun() {
    const auto path = find_program("mpirun");
    if (!path) {
        std::printf("  no mpirun here: it is left out\n");
        return std::nullopt;
    }
    return std::vector<std::string>{*path, "--allow-run-as-root", "--oversubscribe"};
}

std::optional<std::vector<std::string>> build_mpi_program(const std::filesystem::path& source,
                                                          const std::string& folder) {
    auto command = find_mpirun();
    const auto compiler = find_program("mpicc");
    if (!command || !compiler) {
        std::printf("  without both mpirun and mpicc, Open MPI is left out\n");
        return std::nullopt;
    }
    const std::string program = folder + "/" + source.stem().string();
    testing::Program build({{*compiler, "-O2", "-o", program, source.string()}, {}, ""});
    if (build.wait(std::chrono::seconds(60)) != 0) {
        std::printf("  mpicc does not work here: Open MPI is left out\n%s", build.output().c_str());
        return std::nullopt;
    }
    command->push_back(program);
    return command;
}

}  // namespace regroup::bench
