// SPDX-License-Identifier: Apache-2.0
#include "agent/health/node_check.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "agent/health/gpu_probe.h"
#include "agent/health/host_probe.h"
#include "agent/health/load_test.h"
#include "agent/health/probe_answer.h"
#include "rendezvous/files/own_file.h"
#include "rendezvous/net/route.h"

namespace regroup::health {

namespace {

namespace asio = boost::asio;

// The computing itself, and the start of its threads on a busy machine.
constexpr Duration kComputing = std::chrono::seconds(10);
// A stopped process loses at most so much of its time when it goes on.
constexpr Duration kPart = std::chrono::milliseconds(250);
// The workers wait meanwhile.
constexpr Duration kFolderLimit = std::chrono::milliseconds(100);
constexpr std::size_t kAnswerMax = std::size_t{4} << 20U;

// The kernel's log counts from the same moment.
std::uint64_t microseconds_since_boot() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1000000 +
           static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

std::string answer_in(int fd) {
    ::lseek(fd, 0, SEEK_SET);
    const Result<std::string> text = files::read_all(fd, kAnswerMax);
    return text ? *text : "";
}

Driver driver_that(Driver::State state, std::string error = {}) {
    Driver driver;
    driver.state = state;
    driver.error = std::move(error);
    return driver;
}

}  // namespace

bool may_use_gpus(const CheckOptions& options) {
    return has_driver(options.places) && may_use_gpus(options.needs.visible_gpus);
}

bool needs_process(const CheckOptions& options) {
    return options.level == Level::full || (options.level == Level::basic && may_use_gpus(options));
}

Duration time_limit(const CheckOptions& options, Duration limit) {
    return options.level == Level::full ? limit + kComputing : limit;
}

struct NodeCheck::Probe : std::enable_shared_from_this<Probe> {
    Probe(asio::io_context& io, agent::ChildProcess child_in, UniqueFd answer_in, Duration limit)
        : child(std::move(child_in)), answer(std::move(answer_in)), timer(io), left(limit) {}

    // A signal or a paused machine stops the probe together with this process.
    void watch(std::function<void()> on_late) {
        const Duration part = std::min(left, kPart);
        timer.expires_after(part);
        timer.async_wait([weak = weak_from_this(), part,
                          on_late = std::move(on_late)](boost::system::error_code cancelled) {
            const auto probe = weak.lock();
            if (cancelled || !probe) {
                return;
            }
            probe->left -= part;
            probe->left > Duration::zero() ? probe->watch(on_late) : on_late();
        });
    }

    agent::ChildProcess child;
    UniqueFd answer;
    asio::steady_timer timer;
    Duration left;
};

NodeCheck::NodeCheck(asio::io_context& io, agent::LinuxLauncher& launcher, CheckOptions options)
    : io_(io), launcher_(launcher), options_(std::move(options)) {
    if (options_.needs.began == 0 && options_.level != Level::off) {
        options_.needs.began = microseconds_since_boot();
    }
}

NodeCheck::~NodeCheck() = default;

void NodeCheck::cancel() {
    probe_.reset();
}

std::vector<Finding> NodeCheck::judge(const Driver& driver, const Needs& needs) {
    Host host = probe_host(options_.places);
    if (!options_.log_folder.empty()) {
        host.log_folder = folders_.ask(options_.log_folder, kFolderLimit);
    }
    std::vector<Finding> findings = judge_driver(driver, needs);
    for (auto more : {judge_cpus(probed_.cpus), judge_host(host, needs)}) {
        findings.insert(findings.end(), std::make_move_iterator(more.begin()),
                        std::make_move_iterator(more.end()));
    }
    return findings;
}

void NodeCheck::run(Duration limit, bool has_run, OnDone on_done) {
    run_at(options_.level, limit, has_run, std::move(on_done));
}

void NodeCheck::run_lightly(Duration limit, OnDone on_done) {
    run_at(std::min(options_.level, Level::basic), limit, true, std::move(on_done));
}

void NodeCheck::run_at(Level level, Duration limit, bool has_run, OnDone on_done) {
    cancel();
    if (level == Level::off) {
        on_done({});
        return;
    }
    Needs needs = options_.needs;
    needs.has_run = has_run;
    probed_ = {};
    const bool asks = may_use_gpus(options_);
    const bool computes = level == Level::full;
    if (!asks && !computes) {
        on_done(judge({}, needs));
        return;
    }
    UniqueFd answer(::memfd_create("regroup-probe", MFD_CLOEXEC));
    agent::ProcessSpec spec;
    spec.executable = options_.program;
    spec.arguments = {"regroup",
                      kProbeWord,
                      asks ? "gpus" : "-",
                      computes ? "cpus" : "-",
                      options_.places.root.string(),
                      options_.places.nvml};
    spec.environment = agent::own_environment();
    spec.stdout_fd = answer.get();
    Result<agent::ChildProcess> child =
        answer ? launcher_.launch(spec)
               : Result<agent::ChildProcess>(system_failure("memfd_create", errno));
    if (!child) {
        on_done(judge(
            driver_that(Driver::State::crashed, "could not be started: " + child.error().detail),
            needs));
        return;
    }
    limit += computes ? kComputing : Duration::zero();
    probe_ = std::make_shared<Probe>(io_, std::move(*child), std::move(answer), limit);
    const auto done = [this, has_run, on_done = std::move(on_done)](const Driver& driver) {
        probe_.reset();
        Needs now = options_.needs;
        now.has_run = has_run;
        on_done(judge(driver, now));
    };
    const bool is_first = !std::exchange(has_begun_, true);
    const auto take = [this, done, is_first](agent::ExitStatus status) {
        std::optional<Probed> probed = read_answer(answer_in(probe_->answer.get()));
        if (!status.success() || !probed) {
            done(driver_that(Driver::State::crashed, status.describe()));
            return;
        }
        probed_ = *std::move(probed);
        // The log's clock may be minutes ahead of ours. All that it has now is older than the job.
        if (is_first && probed_.driver.log_end > 0) {
            options_.needs.began = probed_.driver.log_end + 1;
        }
        done(Driver(probed_.driver));
    };
    probe_->child.async_wait(take);
    probe_->watch([this, done, take, asks, limit] {
        if (const auto status = probe_->child.status()) {
            take(*status);
            return;
        }
        // A process that is stuck in the driver survives this, and is left to itself.
        Driver driver = driver_that(asks ? Driver::State::silent : Driver::State::crashed,
                                    "did not end in time");
        driver.limit = static_cast<std::uint64_t>(
            std::chrono::duration_cast<std::chrono::seconds>(limit).count());
        done(driver);
    });
}

std::vector<Finding> NodeCheck::check_clock(Duration ahead) const {
    return options_.level == Level::off ? std::vector<Finding>() : judge_clock(ahead);
}

std::vector<Finding> NodeCheck::check_link(const std::string& address) {
    if (options_.level == Level::off || address.empty()) {
        return {};
    }
    const Link link = probe_link(options_.places, net::interface_towards(address));
    if (!first_link_) {
        first_link_ = link;
    }
    return judge_link(link, *first_link_);
}

int answer_probe(const std::vector<std::string>& arguments) {
    if (arguments.size() != 4) {
        return 2;
    }
    const Places places{arguments[2], arguments[3]};
    Probed probed;
    if (arguments[0] == "gpus") {
        probed.driver = probe_driver(places);
    }
    if (arguments[1] == "cpus") {
        probe_cpus({}, probed);
    }
    std::puts(write_answer(probed).c_str());
    return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace regroup::health
