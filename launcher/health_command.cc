// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <variant>

#include <boost/asio/io_context.hpp>

#include "agent/health/node_check.h"
#include "agent/process/linux_launcher.h"
#include "launcher/commands.h"
#include "launcher/flag_table.h"
#include "launcher/host.h"
#include "launcher/say.h"
#include "rendezvous/base/exit_code.h"

namespace regroup::launcher {

namespace {

constexpr Duration kLimit = std::chrono::seconds(60);

void describe(FlagTable& flags, bool& full) {
    flags.usage = "regroup health [--full]";
    flags.introduction =
        "Check this node as `regroup run` does before it joins a job: its GPUs, limits and space.\n"
        "docs/operating.md lists the checks.";
    flags.footer =
        "Exit code: 0 if the node may take part in a job; 76 if not; 2 for a mistake on the\n"
        "command line.";
    flags.group("Flags");
    flags.toggle({"--full", "", "",
                  "Also compute on all CPUs and copy memory, for about 1.5 s: see --health of "
                  "regroup run"},
                 full);
}

std::string state_text(const health::Gpu& gpu) {
    switch (gpu.state) {
        case health::Gpu::State::answers:
            return "answers";
        case health::Gpu::State::lost:
            return "is lost";
        case health::Gpu::State::missing:
            return "is missing";
        case health::Gpu::State::denied:
            return "is not for this process";
        case health::Gpu::State::failed:
            return "fails";
    }
    return "";
}

void print_speeds(const std::vector<health::CpuResult>& cpus) {
    const auto [least, most] = std::minmax_element(
        cpus.begin(), cpus.end(), [](const health::CpuResult& a, const health::CpuResult& b) {
            return a.products_per_second < b.products_per_second;
        });
    const std::string count = std::to_string(cpus.size());
    if (most->products_per_second == 0) {
        print(count +
              " CPUs computed; their speed is not measured, because the CPU quota of the cgroup "
              "is smaller");
        return;
    }
    print(count + " CPUs computed " +
          std::to_string(static_cast<std::uint64_t>(least->products_per_second)) + " to " +
          std::to_string(static_cast<std::uint64_t>(most->products_per_second)) +
          " matrix products a second each");
}

// The measurements, also where nothing is wrong.
void print_facts(const health::Probed& probed) {
    for (std::size_t number = 0; number < probed.driver.gpus.size(); ++number) {
        const health::Gpu& gpu = probed.driver.gpus[number];
        print("GPU " + std::to_string(number) + " (" + gpu.address + ") " + state_text(gpu));
    }
    if (!probed.cpus.empty()) {
        print_speeds(probed.cpus);
    }
    if (probed.copied_per_second > 0) {
        print("memory was read and written at " +
              health::bytes_text(static_cast<std::uint64_t>(probed.copied_per_second)) +
              " a second");
    }
}

CommandEnd check(bool full) {
    boost::asio::io_context io{1};
    agent::LinuxLauncher launcher(io);
    health::CheckOptions checks;
    checks.level = full ? health::Level::full : health::Level::basic;
    checks.needs.visible_gpus = variable("CUDA_VISIBLE_DEVICES");
    checks.needs.gpu_order = variable("CUDA_DEVICE_ORDER");
    health::NodeCheck node(io, launcher, std::move(checks));
    std::vector<health::Finding> findings;
    node.run(kLimit, false, [&](const auto& found) { findings = found; });
    io.run();
    print_facts(node.probed());
    for (const health::Finding& finding : findings) {
        print((finding.refuses() ? "fault: " : "warning: ") + finding.text + " [" +
              std::string(to_string(finding.check)) + "]");
    }
    const bool healthy = health::fault(findings).empty();
    print(healthy ? "this node may take part in a job" : "this node may not take part in a job");
    return {healthy ? 0 : kExitUnhealthy};
}

}  // namespace

CommandEnd health_command(std::span<const std::string> arguments) {
    bool full = false;
    FlagTable flags("regroup health");
    describe(flags, full);
    return run_with(flags, arguments, [&](const Words& words) -> Result<CommandEnd> {
        const Result<void> none = expect_no_words(words);
        return none ? check(full) : Result<CommandEnd>(none.error());
    });
}

}  // namespace regroup::launcher
