// SPDX-License-Identifier: Apache-2.0
#include "agent/watch/telemetry.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace regroup::agent {

using rendezvous::StepCounters;
using rendezvous::Telemetry;

namespace {

// The daemon refuses larger numbers.
constexpr std::uint64_t kCountMax = std::uint64_t{1} << 53U;
constexpr Duration kTimeMax = std::chrono::hours(24 * 365 * 30);

std::uint64_t count_of(const std::atomic<std::uint64_t>& count) {
    return std::min(count.load(std::memory_order_relaxed), kCountMax);
}

Duration time_of(const std::atomic<std::int64_t>& time) {
    return std::clamp(Duration(time.load(std::memory_order_relaxed)), Duration::zero(), kTimeMax);
}

// A copy, which the worker cannot change any more.
std::string name_of(const worker_link::TelemetryBlock::Value& value) {
    const auto name = value.name;
    return {name.begin(), std::find(name.begin(), name.end(), '\0')};
}

}  // namespace

std::optional<Telemetry> read_telemetry(const worker_link::TelemetryBlock& block,
                                        std::uint32_t pid) {
    Telemetry telemetry{.pid = pid};
    StepCounters& counters = telemetry.counters;
    counters.steps = std::min(block.steps.load(std::memory_order_acquire), kCountMax);
    if (counters.steps == 0) {
        return std::nullopt;
    }
    counters.samples = count_of(block.samples);
    counters.data = time_of(block.data);
    counters.compute = time_of(block.compute);
    counters.communication = time_of(block.communication);
    counters.waiting = time_of(block.waiting);
    const std::size_t values = block.values_count.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < std::min(values, block.values.size()); ++i) {
        std::string name = name_of(block.values[i]);
        const double value = block.values[i].value.load(std::memory_order_relaxed);
        const bool is_new = std::ranges::none_of(
            telemetry.values, [&](const auto& other) { return other.name == name; });
        if (is_value_name(name) && std::isfinite(value) && is_new) {
            telemetry.values.push_back({std::move(name), value});
        }
    }
    return telemetry;
}

std::optional<Telemetry> TelemetrySource::news(rendezvous::RoundId round,
                                               std::span<const LiveWorker> workers) {
    if (round != round_) {
        round_ = round;
        page_.reset();
    }
    for (const LiveWorker& worker : workers) {
        if (worker.rank == 0 && worker.round == round && worker.page) {
            page_ = worker.page;
            pid_ = static_cast<std::uint32_t>(worker.pid);
        }
    }
    if (round == rendezvous::RoundId::none || !page_) {
        return std::nullopt;
    }
    std::optional<Telemetry> now = read_telemetry((*page_)->telemetry, pid_);
    if (!now || now == sent_) {
        return std::nullopt;
    }
    sent_ = now;
    return now;
}

}  // namespace regroup::agent
