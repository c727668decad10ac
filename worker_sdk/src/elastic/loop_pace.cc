// SPDX-License-Identifier: Apache-2.0
//
// How a Loop measures and reports its pace.
#include <regroup/error.h>

#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/printable.h"
#include "rendezvous/base/telemetry_limits.h"
#include "worker_sdk/src/elastic/loop.h"

namespace regroup::elastic {
namespace {

/// Sections of this name count as time for data.
constexpr std::string_view kDataSection = "data";

}  // namespace

void Loop::begin_section(std::string_view name) noexcept {
    reporter_.begin_section(name);
    if (const WaitMeter* const meter = WaitMeter::current();
        name == kDataSection && meter != nullptr) {
        clock_.begin_data(SteadyClock().now(), meter->waited());
    }
}

void Loop::end_section() noexcept {
    reporter_.end_section();
    // An exception may have ended the session, and the meter with it.
    if (const WaitMeter* const meter = WaitMeter::current();
        clock_.is_in_data() && meter != nullptr) {
        clock_.end_data(SteadyClock().now(), meter->waited());
    }
}

void Loop::report(std::string_view name, double value) {
    mark_.require("report");
    if (!is_value_name(name)) {
        throw Error(Errc::invalid_argument,
                    "report(\"" + printable(name.substr(0, 2 * kValueNameBytesMax)) +
                        "\"): the name of a value has 1 to " + std::to_string(kValueNameBytesMax) +
                        " of the characters a to z, 0 to 9 and _, and does not begin with a digit");
    }
    if (!telemetry_.set_value(name, value)) {
        throw Error(Errc::invalid_argument, "report(\"" + std::string(name) +
                                                "\"): this program reports " +
                                                std::to_string(kReportedValuesMax) +
                                                " values already, and there is room for no more");
    }
}

void Loop::look_after_step() {
    if (options_.straggler_window != 0 && round_steps_ % options_.straggler_window == 0) {
        compare_pace();
    }
    if (options_.compare_every != 0 && step_ % options_.compare_every == 0 && has_peers()) {
        compare_replicas(registered_.digests());
    }
}

void Loop::compare_pace() {
    const std::uint32_t world = round_->context.world_size;
    const std::int64_t mine = std::exchange(window_work_, Duration{}).count();
    if (world == 1) {
        return;
    }
    std::vector<std::int64_t> all(world);
    round_->control().all_gather(std::span(&mine, 1), std::span(all)).wait();
    const std::vector<Duration> work(all.begin(), all.end());
    for (const Straggler& slow : stragglers_->observe(work)) {
        if (round_->context.rank != 0) {
            continue;
        }
        if (link_) {
            link_->send(worker_link::Remark{
                .text = "rank " + std::to_string(slow.rank) + " is slow: its own work takes " +
                        std::to_string(static_cast<int>(slow.excess * 100)) +
                        " % longer than the median of the others, in most of the last " +
                        std::to_string(slow.windows * options_.straggler_window) + " steps"});
        }
        if (straggler_listener_) {
            straggler_listener_(slow.rank, slow.excess);
        }
    }
    if (round_->context.rank == 0) {
        show_slow_ranks();
    }
}

void Loop::show_slow_ranks() {
    std::array<link::TelemetryWriter::Slow, kSlowRanksMax> shown{};
    std::size_t count = 0;
    for (const Straggler& slow : stragglers_->slow_ranks()) {
        if (count < shown.size()) {
            shown[count++] = {slow.rank, slow.excess};
        }
    }
    telemetry_.set_slow_ranks(std::span(shown).first(count));
}

void Loop::tell_resumed() {
    if (!link_) {
        return;
    }
    using Milliseconds = std::chrono::duration<double, std::milli>;
    link_->send(worker_link::Resumed{
        .round = round_->context.round,
        .step = step_,
        .communicator_ms = Milliseconds(communicator_time_).count(),
        .state_ms = Milliseconds(state_time_).count(),
        .first_step_ms = Milliseconds(SteadyClock().now() - training_began_).count()});
}

}  // namespace regroup::elastic
