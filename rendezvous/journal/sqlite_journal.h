// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/files/unique_fd.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/journal/sqlite_database.h"

namespace regroup::journal {

/// A journal in one SQLite database, `journal.sqlite3` in a directory of its own.
///
/// In WAL mode with synchronous=NORMAL: entries that are `done` survive the death of the daemon at
/// any instant. After a power loss of the machine the last seconds may be missing, but never
/// entries in the middle. A job whose agents know more than the journal is then formed anew.
///
/// If the disk is full, room is made in the file: the oldest ended job goes first. When none is
/// left, the largest job goes, and only of that job no more entries are kept.
///
/// If writing fails nevertheless, or because the database is broken, the file is renamed to
/// `journal.sqlite3.broken`, so that no later daemon uses an incomplete journal. This daemon
/// continues without one.
class SqliteJournal final : public Journal {
   public:
    /// PRAGMA user_version. Before format 3 the records had no numbers, so that a gap did not show.
    static constexpr std::int64_t kFormat = 3;
    /// The most ended jobs that are kept, the longest time, and the most bytes of all of them. The
    /// oldest go first. Those of one id take kJobBytesMax at most, or there is only one.
    static constexpr std::size_t kEndedMax = 100;
    static constexpr std::int64_t kEndedMsMax = std::int64_t{30} * 24 * 3600 * 1000;
    static constexpr std::size_t kEndedBytesMax = std::size_t{512} << 20U;
    /// The `trouble` of a job whose entries had to make room.
    static constexpr const char* kNoRoom =
        "the disk was full and it was the largest, so no more entries are kept: if the daemon "
        "ends, its nodes form it anew";

    /// Creates `directory` if it is missing (with mode 0700, since entries contain the output of
    /// workers). `wall_ms`: the current time; `job_bytes_max`: the limit for a job;
    /// `ended_bytes_max`: for all ended jobs. Errors: overloaded, if another daemon holds the
    /// directory, naming its process, or the disk is full; system, if the directory cannot be
    /// created or the database cannot be opened.
    static Result<std::unique_ptr<SqliteJournal>> open(
        const std::string& directory, std::int64_t wall_ms,
        std::size_t job_bytes_max = kJobBytesMax, std::size_t ended_bytes_max = kEndedBytesMax);
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
    struct Numbers {
        std::int64_t row = 0;  // Of the job; 0: the database has nothing of it.
        std::int64_t records = 0;
        std::size_t bytes = 0;
        const char* left_out = nullptr;  // Why no more entries are kept.
    };
    using Jobs = std::map<JobKey, std::shared_ptr<Numbers>>;

    SqliteJournal(std::string directory, UniqueFd lock, SqliteDatabase database,
                  std::size_t job_bytes_max, std::size_t ended_bytes_max);

    Result<void> prepare(std::int64_t wall_ms);
    Result<void> set_up(std::int64_t wall_ms);
    /// Writes the first records, as many as fit into one transaction, and removes them.
    void write_some(const JobKey& job, Numbers& numbers, std::span<const std::string>& records);
    Result<void> insert(const JobKey& job, Numbers& numbers, std::span<const std::string> records);
    /// Runs `work`, which writes about `bytes`, as one transaction. Makes room if the disk is full,
    /// and gives up if that does not help.
    void transact(std::size_t bytes, const std::function<Result<void>()>& work);
    /// Deletes the oldest ended job, else the largest one. False if there is none.
    bool drop_one(const Failure& why);
    /// The job of the largest id, and its earliest one if there are several; end() if none is kept.
    [[nodiscard]] Jobs::iterator largest();
    /// Deletes ended jobs beyond the bounds. Within a transaction.
    Result<void> prune(std::int64_t wall_ms);
    /// Writing has failed: renames the database, logs that, and keeps no more entries.
    void give_up(const Failure& failure);

    std::string directory_;
    UniqueFd lock_;                           // Held as long as this object.
    std::optional<SqliteDatabase> database_;  // None once writing has failed.
    std::string failure_;                     // Why writing failed.
    Hooks hooks_;
    const std::size_t job_bytes_max_;
    const std::size_t ended_bytes_max_;
    Jobs jobs_;
    bool is_full_ = false;  // The log says that the disk is full.
};

}  // namespace regroup::journal
