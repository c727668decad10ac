// SPDX-License-Identifier: Apache-2.0
//
// Jobs as a daemon would keep them, for tests of the journal.
#pragma once

#include <string>

#include "protocol_samples.h"
#include "rendezvous/journal/replay.h"

namespace regroup::testing {

/// Steps a core and keeps its events.
class Recorder {
   public:
    explicit Recorder(rendezvous::JobPolicy policy, std::string id = "nightly")
        : core_(std::move(policy), 1000) {
        job_.key = {std::move(id), 1000};
    }

    void at(std::int64_t ms, std::optional<rendezvous::Event> event) {
        journal::Entry entry{
            Instant(std::chrono::milliseconds(ms)), 1000 + ms, std::move(event), {}};
        const rendezvous::Effects effects = journal::apply(core_, entry);
        entry.assigned = journal::assignments_of(effects);
        job_.entries.push_back(std::move(entry));
    }
    [[nodiscard]] const journal::StoredJob& job() const { return job_; }
    [[nodiscard]] journal::StoredJob& job() { return job_; }
    [[nodiscard]] const rendezvous::RendezvousCore& core() const { return core_; }

   private:
    rendezvous::RendezvousCore core_;
    journal::StoredJob job_;
};

inline rendezvous::NodeJoined joined(const std::string& name) {
    rendezvous::NodeJoined event;
    event.node = name + "-1";
    event.policy.nodes_min = event.policy.nodes_max = 2;
    event.policy.restarts_max = 1;
    event.policy.last_call = Duration::zero();
    event.offer.name = name;
    event.offer.address = "10.0.0." + std::to_string(name.back() % 10);
    event.report.store_port = 40000;
    return event;
}

inline rendezvous::NodeReported reported(const std::string& name, std::uint64_t round,
                                         rendezvous::NodeState state) {
    rendezvous::NodeReported event{name + "-1", {}};
    event.report.round = rendezvous::RoundId{round};
    event.report.state = state;
    event.report.store_port = 40000;
    return event;
}

inline std::string lines_of(const journal::StoredJob& job) {
    std::string lines;
    const Result<void> all = journal::to_lines(
        journal::kept(job), [&](const std::string& line) { lines += line + "\n"; });
    return all ? lines : all.error().detail;
}

/// All entries that a journal returns.
inline std::vector<journal::StoredJob> read_jobs(const std::vector<journal::KeptJob>& kept) {
    std::vector<journal::StoredJob> jobs;
    for (const journal::KeptJob& job : kept) {
        if (Result<journal::StoredJob> all = journal::read_all(job)) {
            jobs.push_back(std::move(*all));
        }
    }
    return jobs;
}

/// Two nodes form a round, a worker fails, they form another.
inline Recorder story_of_two_rounds() {
    using rendezvous::NodeState;
    Recorder recorder(joined("a").policy);
    recorder.at(0, joined("a"));
    recorder.at(1, joined("b"));
    recorder.at(20, reported("a", 1, NodeState::running));
    recorder.at(21, reported("b", 1, NodeState::running));
    rendezvous::NodeReported failed = reported("b", 1, NodeState::stopped);
    failed.report.failure = sample_failure();
    failed.report.failure->kind = rendezvous::FailureKind::failure;
    recorder.at(500, failed);
    recorder.at(510, reported("a", 1, NodeState::stopped));
    // All timers due by then, such as the delay of the restart.
    while (recorder.core().round() < rendezvous::RoundId{2} &&
           recorder.core().next_deadline() < Instant(std::chrono::seconds(3))) {
        recorder.at(std::chrono::ceil<std::chrono::milliseconds>(
                        recorder.core().next_deadline().time_since_epoch())
                        .count(),
                    std::nullopt);
    }
    return recorder;
}

}  // namespace regroup::testing
