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
/// In WAL mode with synchronous=NORMAL: entries that are `done` survive the death of the daemon at
/// any instant. After a power loss of the machine the last seconds may be missing, but never
/// entries in the middle. A job whose agents know more than the journal is then formed anew.
///
/// If writing fails because the disk is full or the database is broken, the file is renamed to
/// `journal.sqlite3.broken`, so that no later daemon uses an incomplete journal. This daemon
/// continues without one.
class SqliteJournal final : public Journal {
   public:
    /// The most ended jobs that are kept, and the longest time.
    static constexpr std::size_t kEndedMax = 100;
    static constexpr std::int64_t kEndedMsMax = std::int64_t{30} * 24 * 3600 * 1000;

    /// Creates `directory` if it is missing (with mode 0700, since entries contain the output of
    /// workers). `wall_ms`: the current time; `job_bytes_max`: the limit for a job. Errors:
    /// overloaded, if another daemon holds the directory, naming its process; system, if the
    /// directory cannot be created or the database cannot be opened.
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
    /// One job of the database. It keeps the file open.
    static Result<KeptJob> job_in(const std::string& file, const JobKey& job);

   private:
    SqliteJournal(std::string directory, int lock, SqliteDatabase database,
                  std::size_t job_bytes_max);

    Result<void> prepare(std::int64_t wall_ms);
    Result<void> set_up(std::int64_t wall_ms);
    Result<void> write(const JobKey& job, std::span<const Entry> entries);
    /// Deletes ended jobs beyond the bounds. Within a transaction.
    Result<void> prune(std::int64_t wall_ms);
    /// Writing has failed: renames the database, logs that, and keeps no more entries.
    void give_up(const Failure& failure);

    std::string directory_;
    int lock_;                                // Descriptor; held as long as this object.
    std::optional<SqliteDatabase> database_;  // None once writing has failed.
    std::string failure_;                     // Why writing failed.
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
