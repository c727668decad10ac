// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/journal/journal.h"
#include "rendezvous/journal/sqlite_database.h"

namespace regroup::journal {

/// A journal in one SQLite database, `journal.sqlite3` in a directory of its own.
///
/// In WAL mode with synchronous=NORMAL: what is `done` survives the death of the daemon at any
/// instant, but not always that of the machine: after a power loss the last seconds may be missing,
/// never something in the middle. A job whose agents know more than the journal is then formed
/// anew.
///
/// If writing fails, because the disk is full or the database broken, the file is set aside as
/// `journal.sqlite3.broken`, so that no later daemon takes half a story for the whole, and this one
/// goes on without a journal.
class SqliteJournal final : public Journal {
   public:
    /// Ended jobs that are kept, and for how long.
    static constexpr std::size_t kEndedMax = 100;
    static constexpr std::int64_t kEndedMsMax = std::int64_t{30} * 24 * 3600 * 1000;

    /// Creates `directory` if it is missing (with mode 0700: entries hold what workers print).
    /// `wall_ms` is now; `job_bytes_max` what a job may take. Errors: overloaded, if another daemon
    /// holds the directory, naming its process; system, if it cannot be created or the database not
    /// be opened.
    static Result<std::unique_ptr<SqliteJournal>> open(const std::string& directory,
                                                       std::int64_t wall_ms,
                                                       std::size_t job_bytes_max = kJobBytesMax);
    ~SqliteJournal() override;

    void start(Hooks hooks) override;
    void append(const JobKey& job, std::vector<Entry> entries, std::function<void()> done) override;
    void end(const JobKey& job) override;
    [[nodiscard]] std::string trouble(const JobKey& job) const override;

    /// All jobs of the database in `file`, ended ones too, without their entries; the newest last.
    /// May be called while a daemon writes to it. Errors: system, invalid_argument.
    static Result<std::vector<StoredJob>> jobs_in(const std::string& file);
    /// One of them. It keeps the file open.
    static Result<KeptJob> job_in(const std::string& file, const JobKey& job);

   private:
    SqliteJournal(std::string directory, int lock, SqliteDatabase database,
                  std::size_t job_bytes_max);

    Result<void> prepare(std::int64_t wall_ms);
    Result<void> set_up(std::int64_t wall_ms);
    Result<void> write(const JobKey& job, std::span<const Entry> entries);
    /// Deletes ended jobs beyond the bounds. Within a transaction.
    Result<void> prune(std::int64_t wall_ms);
    /// Writing has failed: sets the database aside, says so, and keeps nothing from then on.
    void give_up(const Failure& failure);

    std::string directory_;
    int lock_;                                // Descriptor; held as long as this object.
    std::optional<SqliteDatabase> database_;  // None once writing has failed.
    std::string failure_;                     // Why.
    Hooks hooks_;
    struct Numbers {
        std::int64_t row = 0;  // Of the job.
        std::int64_t records = 0;
        std::size_t bytes = 0;
    };
    const std::size_t job_bytes_max_;
    std::map<JobKey, std::shared_ptr<Numbers>> jobs_;
};

}  // namespace regroup::journal
