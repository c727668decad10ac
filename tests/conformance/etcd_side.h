// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon_harness.h"
#include "journal_stories.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/journal/etcd_journal.h"

namespace regroup::testing {

/// A daemon's side of a journal in etcd: the calls of its hooks.
struct EtcdSide {
    static journal::EtcdJournal::Options options_of(std::uint16_t etcd, const std::string& name) {
        journal::EtcdJournal::Options options;
        options.endpoints = {{"127.0.0.1", etcd}};
        options.advertise = name + ":1";
        options.lease = std::chrono::seconds(5);
        return options;
    }
    void start(Loop& loop, journal::EtcdJournal::Options options) {
        journal = std::make_unique<journal::EtcdJournal>(loop.io(), kClock, std::move(options));
        journal->start({[this](const std::vector<journal::KeptJob>& taken) {
                            jobs = read_jobs(taken);
                            leads = true;
                        },
                        [this](const std::string& endpoint) {
                            leader = endpoint;
                            leads = false;
                        },
                        [this](const std::string& line) { log += line + "\n"; }});
    }
    void append(const journal::StoredJob& job) {
        for (const journal::Entry& entry : job.entries) {
            journal->append(job.key, {entry}, [this] { ++done; });
        }
    }

    /// Must live until the event loop has ended the journal's coroutines.
    static inline const SteadyClock kClock;
    std::vector<journal::StoredJob> jobs;
    bool leads = false;
    std::string leader;
    std::string log;
    std::size_t done = 0;
    std::unique_ptr<journal::EtcdJournal> journal;
};

}  // namespace regroup::testing
