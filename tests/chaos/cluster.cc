// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/cluster.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace regroup::chaos {
namespace {

using testing::Program;
using testing::ProgramSpec;

constexpr const char* kPort = "29400";
constexpr const char* kProxyPort = "29999";
constexpr std::chrono::seconds kStartLimit(20);
/// How long processes of an ended program may remain.
constexpr std::chrono::seconds kOrphanLimit(20);
constexpr const char* kRunDiskSize = "size=16m";
constexpr const char* kStateDiskSize = "size=64m";
constexpr const char* kFiller = "/filler";

Result<void> mount_disk(const std::string& path, const char* size) {
    std::filesystem::create_directories(path);
    if (::mount("tmpfs", path.c_str(), "tmpfs", 0, size) != 0) {
        return system_failure("mounting a small disk at " + path, errno);
    }
    return {};
}

}  // namespace

Result<void> leave_mount_namespace() {
    if (::unshare(CLONE_NEWNS) != 0) {
        return system_failure("a mount namespace (that needs root)", errno);
    }
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
        return system_failure("making mounts private", errno);
    }
    return {};
}

Cluster::Cluster(const ClusterPlan& plan, Network network)
    : plan_(plan),
      network_(std::move(network)),
      end_(path("end").c_str()),
      slow_line_(path("slow-line").c_str()),
      daemon_clock_(path("clock-daemon").c_str()) {}

Cluster::~Cluster() = default;

Result<std::unique_ptr<Cluster>> Cluster::build(const ClusterPlan& plan) {
    Result<Network> network = Network::lay(plan.nodes + 1);
    if (!network) {
        return network.error();
    }
    std::unique_ptr<Cluster> cluster(new Cluster(plan, *std::move(network)));
    std::filesystem::create_directories(cluster->step_logs());
    Result<void> done = mount_disk(cluster->state_disk(), kStateDiskSize);
    for (std::uint32_t node = 0; node < plan.nodes && done; ++node) {
        done = mount_disk(cluster->run_disk(node), kRunDiskSize);
        cluster->nodes_.push_back(
            {nullptr, std::make_unique<Dial>(cluster->path("clock-" + node_name(node)).c_str()),
             false});
    }
    Program token({{plan.regroup, "token", "--generate", cluster->token_flag()}, {}, plan.folder});
    if (done && token.wait() != 0) {
        done = Failure(Errc::system, "no token can be made: " + token.output());
    }
    done = done ? cluster->start_slow_line() : done;
    if (!done) {
        return done.error();
    }
    return cluster;
}

Result<void> Cluster::start_slow_line() {
    const std::size_t host = plan_.nodes;  // The host of the last node.
    network_.within(host, "proxy", [&] {
        proxy_ = std::make_unique<Program>(
            ProgramSpec{{plan_.delay_proxy, kProxyPort, path("slow-line")}, {}, plan_.folder});
    });
    if (!proxy_->prints("ready", kStartLimit)) {
        return Failure(Errc::system, "the delaying proxy does not start: " + proxy_->output());
    }
    return network_.redirect(host, static_cast<std::uint16_t>(std::stoi(kProxyPort)));
}

std::string Cluster::run_disk(std::uint32_t node) const {
    return path("runs-" + node_name(node));
}

void Cluster::start_daemon() {
    if (daemon_) {
        ended_.push_back(std::move(daemon_));
    }
    std::vector<std::string> command{plan_.regroup, "serve",
                                     "--listen=" + Network::address(0) + ":" + kPort,
                                     "--state=" + state_disk(), token_flag()};
    command.insert(command.end(), plan_.serve_flags.begin(), plan_.serve_flags.end());
    network_.within(0, "daemon", [&] {
        daemon_ = std::make_unique<Program>(
            ProgramSpec{command,
                        {"LD_PRELOAD=" + plan_.clock_shim, "CHAOS_CLOCK=" + path("clock-daemon")},
                        plan_.folder});
    });
}

std::vector<std::string> Cluster::run_command(std::uint32_t node) const {
    const std::uint32_t standbys = plan_.traits.standbys;
    const std::string nodes_max = std::to_string(plan_.nodes - std::max(1U, standbys));
    std::vector<std::string> command{
        plan_.regroup, "run", "--nnodes=1:" + nodes_max,
        "--nproc-per-node=" + std::to_string(plan_.workers), "--rdzv-backend=c10d",
        "--rdzv-endpoint=" + Network::address(0) + ":" + kPort, std::string("--rdzv-id=") + kJob,
        // Every new node gets a place soon.
        "--grow-after=0", "--last-call=1", "--shutdown-timeout=5",
        // Nodes and workers are lost often.
        "--max-restarts=100000", "--max-node-failures=0", "--standbys=" + std::to_string(standbys),
        "--log-dir=" + run_disk(node), token_flag()};
    if (plan_.traits.form != JobForm::in_place) {
        // The launcher does not see steps of restarted workers. Without this flag, the job would
        // wait in the back-off most of the time.
        command.emplace_back("--restart-delay=0");
    }
    const bool has_snapshots = plan_.traits.form == JobForm::snapshots;
    if (has_snapshots && plan_.traits.has_snapshot_folder) {
        command.push_back("--snapshot-dir=" + snapshot_folder());
        command.emplace_back("--snapshot-interval=2");
    }
    command.insert(command.end(), plan_.run_flags.begin(), plan_.run_flags.end());
    for (const std::string& word :
         {plan_.worker, "--records=" + step_logs(), "--end=" + path("end"),
          "--floats=" + std::to_string(plan_.floats)}) {
        command.push_back(word);
    }
    if (has_snapshots) {
        command.push_back("--save-interval=" + std::to_string(plan_.traits.save_interval));
        command.push_back("--snapshot-folder=" + snapshot_folder());
    } else if (plan_.traits.form != JobForm::in_place) {
        command.emplace_back(plan_.traits.form == JobForm::slow_end ? "--slow-end" : "--restarted");
        command.push_back("--checkpoint=" + path("checkpoint"));
    }
    return command;
}

void Cluster::start_node(std::uint32_t node) {
    ClusterNode& entry = nodes_.at(node);
    if (entry.program) {
        ended_.push_back(std::move(entry.program));
    }
    entry.end_is_expected = false;
    network_.within(node + 1, node_name(node), [&] {
        entry.program = std::make_unique<Program>(
            ProgramSpec{run_command(node),
                        {"LD_PRELOAD=" + plan_.clock_shim,
                         "CHAOS_CLOCK=" + path("clock-" + node_name(node)), "OMP_NUM_THREADS=1"},
                        plan_.folder});
    });
}

bool Cluster::drain(std::uint32_t node) const {
    constexpr std::chrono::seconds kLimit(3);
    std::optional<int> code;
    network_.within(0, "daemon", [&] {
        Program program({{plan_.regroup, "drain", "--endpoint=" + Network::address(0) + ":" + kPort,
                          std::string("--job=") + kJob, token_flag(), node_name(node)},
                         {},
                         plan_.folder});
        code = program.wait(kLimit);
    });
    return code == 0;
}

std::optional<std::uint32_t> Cluster::standby() const {
    constexpr std::chrono::milliseconds kLimit(300);
    if (daemon() == 0) {
        return std::nullopt;
    }
    std::string answer;
    network_.within(0, "daemon", [&] {
        Program program(
            {{plan_.regroup, "status", "--json", "--endpoint=" + Network::address(0) + ":" + kPort,
              std::string("--job=") + kJob, token_flag()},
             {},
             plan_.folder});
        answer = program.wait(kLimit) == 0 ? program.output() : "";
    });
    const auto status = nlohmann::json::parse(answer, nullptr, false);
    if (!status.is_object() || status["jobs"].empty()) {
        return std::nullopt;
    }
    for (const auto& row : status["jobs"][0]["nodes"]) {
        for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
            if (row["place"] == "standby" && row["name"] == node_name(node) &&
                !nodes_[node].end_is_expected) {
                return node;
            }
        }
    }
    return std::nullopt;
}

bool ClusterNode::is_up() const {
    return program && program->running();
}

pid_t Cluster::daemon() const {
    return daemon_ && daemon_->running() ? daemon_->pid() : 0;
}

pid_t ClusterNode::warden() const {
    return is_up() ? program->pid() : 0;
}

pid_t ClusterNode::agent() const {
    const pid_t launcher = warden();
    const std::vector<pid_t> children =
        launcher != 0 ? testing::children_of(launcher) : std::vector<pid_t>{};
    return children.empty() ? 0 : children.front();
}

std::vector<pid_t> ClusterNode::workers() const {
    const pid_t parent = agent();
    std::vector<pid_t> children = parent != 0 ? testing::children_of(parent) : std::vector<pid_t>{};
    std::erase_if(children, [](pid_t pid) { return !testing::is_alive(pid); });
    return children;
}

pid_t ClusterNode::worker(std::uint32_t number) const {
    const std::vector<pid_t> children = workers();
    return children.empty() ? 0 : children.at(number % children.size());
}

std::vector<pid_t> ClusterNode::family() const {
    return is_up() ? program->family() : std::vector<pid_t>{};
}

std::string ClusterNode::output() const {
    return program ? program->output() : "";
}

std::vector<Departure> Cluster::departures() {
    std::vector<Departure> result;
    for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
        ClusterNode& entry = nodes_.at(node);
        if (!entry.program || entry.end_is_expected || entry.program->running()) {
            continue;
        }
        entry.end_is_expected = true;
        result.push_back({node, entry.program->wait().value_or(-1), entry.program->output()});
    }
    return result;
}

std::optional<int> ClusterNode::await_end(std::chrono::milliseconds limit) const {
    return program ? program->wait(limit) : std::nullopt;
}

std::optional<int> Cluster::await_daemon_end(std::chrono::milliseconds limit) {
    return daemon_->wait(limit);
}

std::vector<std::string> Cluster::find_orphans() {
    std::vector<Program*> programs;
    for (const auto& program : ended_) {
        programs.push_back(program.get());
    }
    for (ClusterNode& node : nodes_) {
        if (node.program && !node.program->running()) {
            programs.push_back(node.program.get());
        }
    }
    std::vector<std::string> result;
    for (const Program* program : programs) {
        if (testing::eventually([&] { return program->family().empty(); }, kOrphanLimit)) {
            continue;
        }
        for (const pid_t pid : program->family()) {
            result.push_back("process " + std::to_string(pid) + " (" +
                             testing::read_file("/proc/" + std::to_string(pid) + "/comm") +
                             ") has outlived its launcher " + std::to_string(program->pid()));
        }
    }
    return result;
}

void Cluster::fill_disk(const std::string& disk) const {
    const std::string bytes(64 << 10U, 'x');
    const int fd =
        ::open((disk + kFiller).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    ENSURE(fd >= 0);
    std::size_t size = bytes.size();
    while (size > 0) {
        const ssize_t count = ::write(fd, bytes.data(), size);
        size = count > 0 ? size : size / 2;
    }
    ::close(fd);
}

void Cluster::free_disk(const std::string& disk) const {
    ::unlink((disk + kFiller).c_str());
}

}  // namespace regroup::chaos
