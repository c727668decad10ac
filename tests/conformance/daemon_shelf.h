// SPDX-License-Identifier: Apache-2.0
//
// A daemon whose journal is a shelf that the test controls.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "daemon_harness.h"
#include "rendezvous/journal/journal.h"

namespace regroup::testing {

/// The entries, which outlive a journal, and switches for its behaviour.
struct Shelf {
    std::map<journal::JobKey, journal::StoredJob> jobs;
    std::vector<std::function<void()>> waiting;  // While `slow`.
    bool slow = false;
    std::string trouble;
    std::function<void()> on_read = [] {};  // Each entry is read by itself.
    journal::Journal::Hooks hooks;

    void release() {
        slow = false;
        for (const auto& done : std::exchange(waiting, {})) {
            done();
        }
    }
};

class ShelfJournal final : public journal::Journal {
   public:
    ShelfJournal(Shelf& shelf, bool leads) : shelf_(shelf), leads_(leads) {}

    void start(Hooks hooks) override {
        shelf_.hooks = std::move(hooks);
        if (leads_) {
            lead(shelf_);
        }
    }
    static void lead(Shelf& shelf) {
        std::vector<journal::KeptJob> open;
        for (const auto& [key, job] : shelf.jobs) {
            if (!job.ended) {
                open.push_back({key, false, [&shelf, rest = job.entries]() mutable {
                                    shelf.on_read();
                                    std::vector<journal::Entry> next;
                                    if (!rest.empty()) {
                                        next.push_back(rest.front());
                                        rest.erase(rest.begin());
                                    }
                                    return Result<std::vector<journal::Entry>>(std::move(next));
                                }});
            }
        }
        shelf.hooks.lead(std::move(open));
    }
    void append(const journal::JobKey& key, std::vector<journal::Entry> entries,
                std::function<void()> done) override {
        journal::StoredJob& job = shelf_.jobs[key];
        job.key = key;
        for (journal::Entry& entry : entries) {
            job.entries.push_back(std::move(entry));
        }
        if (shelf_.slow) {
            shelf_.waiting.push_back(std::move(done));
        } else {
            done();
        }
    }
    void end(const journal::JobKey& key) override { shelf_.jobs[key].ended = true; }
    [[nodiscard]] std::string trouble(const journal::JobKey& key) const override {
        return shelf_.jobs.contains(key) ? shelf_.trouble : "";
    }

   private:
    Shelf& shelf_;
    bool leads_;
};

inline DaemonHost::Change with_shelf(Shelf& shelf, bool leads = true) {
    return [&shelf, leads](rendezvous::DaemonSetup& setup) {
        setup.open_journal = [&shelf, leads](std::uint16_t /*port*/) {
            return Result(std::unique_ptr<journal::Journal>(new ShelfJournal(shelf, leads)));
        };
    };
}

class DaemonJournal : public ::testing::Test {
   protected:
    std::unique_ptr<DaemonHost> host(bool leads = true) {
        return std::make_unique<DaemonHost>(loop, rendezvous::DaemonLimits(), 0,
                                            with_shelf(shelf, leads));
    }
    [[nodiscard]] const journal::StoredJob& only_job() const { return shelf.jobs.begin()->second; }

    Loop loop;
    Shelf shelf;
};

}  // namespace regroup::testing
