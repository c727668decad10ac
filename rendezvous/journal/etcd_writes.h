// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "rendezvous/journal/journal.h"

namespace regroup::journal {

/// The operations that etcd has yet to write, in order, and how much it keeps of each job. Pure.
class EtcdWrites {
   public:
    using Done = std::function<void()>;
    /// The next operations for one transaction.
    struct Batch {
        nlohmann::json operations;
        std::size_t count = 0;  ///< Of the writes in it.
        std::size_t bytes = 0;  ///< Of their values.
    };

    /// `prefix`: of all keys. `bytes_max`: of the values that wait.
    EtcdWrites(std::string prefix, std::size_t bytes_max,
               std::function<void(const std::string& line)> log)
        : prefix_(std::move(prefix)), bytes_max_(bytes_max), log_(std::move(log)) {}

    /// A new term begins with this job, as etcd has it.
    void take_up(const JobKey& job, std::size_t records, std::size_t bytes) {
        kept_[job] = {records, bytes};
    }
    void append(const JobKey& job, const std::vector<Entry>& entries, Done done);
    void end(const JobKey& job);
    /// The entries of the job take too much: no more of them are recorded.
    [[nodiscard]] bool is_too_large(const JobKey& job) const;

    [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
    [[nodiscard]] Batch next(std::size_t count_max) const;
    /// The first `count` writes are done.
    void confirm(std::size_t count);
    /// etcd will never accept the first of the writes.
    void give_up_on_first(const std::string& why);
    /// Gives up on the jobs that have most bytes waiting, while there are too many. Requires that
    /// no write is in flight.
    void make_room();
    /// Forgets what waits, without calling `done`.
    void clear();
    /// The same, and the sizes of the jobs.
    void forget_jobs() { kept_.clear(); }

   private:
    struct Write {
        JobKey job;
        nlohmann::json operation;
        std::size_t bytes = 0;
        Done done;
        std::size_t record = 0;  ///< Its number; 0 of a deletion.

        [[nodiscard]] bool deletes() const { return record == 0; }
    };
    struct Kept {
        std::size_t records = 0;
        std::size_t bytes = 0;
    };

    void queue(Write write);
    void queue_deletion(const JobKey& job);
    /// Drops the waiting entries of the job, calls their `done`, and stops recording it.
    void give_up_on(const JobKey& job, const std::string& why);
    /// Deletes what etcd has of the job, and stops recording it.
    void forget_entries(const JobKey& job);

    const std::string prefix_;
    const std::size_t bytes_max_;
    const std::function<void(const std::string&)> log_;
    std::map<JobKey, Kept> kept_;
    std::deque<Write> waiting_;
    std::size_t waiting_bytes_ = 0;
};

}  // namespace regroup::journal
