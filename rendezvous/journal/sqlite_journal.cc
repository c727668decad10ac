// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/sqlite_journal.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <iterator>
#include <limits>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include "rendezvous/files/own_file.h"

namespace regroup::journal {

namespace {

constexpr const char* kFile = "/journal.sqlite3";
// The records of one transaction, unless a single one is larger: it has to fit into the room that
// the write-ahead log has taken, with up to three times as much for pages that are not full.
constexpr std::size_t kTransactionBytes = std::size_t{512} << 10U;
constexpr const char* kSchema[] = {
    "CREATE TABLE IF NOT EXISTS jobs (row INTEGER PRIMARY KEY, id TEXT NOT NULL, "
    "began_ms INTEGER NOT NULL, ended_ms INTEGER, bytes INTEGER, "
    "records INTEGER NOT NULL DEFAULT 0, UNIQUE (id, began_ms))",
    "CREATE TABLE IF NOT EXISTS entries (job INTEGER NOT NULL REFERENCES jobs (row), "
    "number INTEGER NOT NULL, entry TEXT NOT NULL, PRIMARY KEY (job, number)) WITHOUT ROWID",
};

constexpr const char* kMakeRoom = "; make room on its disk and start the daemon again";

using Row = SqliteDatabase::Row;

// A column of another type counts as empty; the value is checked later.
std::int64_t number_in(const Row& row, std::size_t at) {
    const auto* number = std::get_if<std::int64_t>(&row[at]);
    return number == nullptr ? 0 : *number;
}
std::string text_in(const Row& row, std::size_t at) {
    const auto* text = std::get_if<std::string>(&row[at]);
    return text == nullptr ? std::string() : *text;
}

std::int64_t as_number(std::size_t bytes) {
    return static_cast<std::int64_t>(
        std::min<std::size_t>(bytes, std::numeric_limits<std::int64_t>::max()));
}

/// Locks `directory`. The failure names the process that holds the lock.
Result<UniqueFd> lock(const std::string& directory) {
    const std::string path = directory + "/lock";
    Result<UniqueFd> file = files::open_own(path, O_RDWR | O_CREAT, 0600);
    if (!file) {
        return Failure(file.error().code, "cannot open " + path + ": " + file.error().detail);
    }
    const int fd = file->get();
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
        const int error = errno;
        char holder[32] = {};
        const ssize_t count = ::pread(fd, holder, sizeof holder - 1, 0);
        if (error != EWOULDBLOCK) {
            return system_failure("cannot lock " + path, error);
        }
        const bool known = count > 0 && std::all_of(holder, holder + count - 1,
                                                    [](char c) { return c >= '0' && c <= '9'; });
        const std::string who =
            known ? "process " + std::string(holder, static_cast<std::size_t>(count - 1))
                  : "another process";
        return Failure(Errc::overloaded, "the state in " + directory + " is in use by " + who +
                                             "; give each daemon a directory of its own");
    }
    const std::string pid = std::to_string(::getpid()) + "\n";
    if (::ftruncate(fd, 0) != 0 ||
        ::pwrite(fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
        // Without it the message to a second daemon says "another process".
        static_cast<void>(::ftruncate(fd, 0));
    }
    return file;
}

/// The record of a job after `number`; none at the end. Advances `number` and `bytes`.
Result<std::vector<Entry>> read_page(SqliteDatabase& database, const JobKey& key, std::int64_t row,
                                     std::int64_t& number, std::size_t& bytes) {
    std::vector<Entry> entries;
    std::optional<Failure> damage;
    // One statement: a daemon may write meanwhile.
    const Result<void> read = database.run(
        "SELECT jobs.records, entries.number, entries.entry FROM jobs LEFT JOIN entries "
        "ON entries.job = jobs.row AND entries.number > ?2 WHERE jobs.row = ?1 "
        "ORDER BY entries.number LIMIT 1",
        {row, number}, [&](const Row& found) {
            const std::int64_t stored = number_in(found, 0);
            const std::int64_t next = number_in(found, 1);
            if (next == 0) {
                if (stored != number) {
                    damage = cut_back(static_cast<std::size_t>(stored),
                                      static_cast<std::size_t>(number));
                }
                return;
            }
            const std::string text = text_in(found, 2);
            bytes += text.size();
            ++number;
            Result<std::vector<Entry>> record =
                decode_numbered(static_cast<std::size_t>(number), next == number ? text : "");
            if (!record) {
                damage = record.error();
                return;
            }
            entries = *std::move(record);
        });
    if (!read) {
        return read.error();
    }
    if (damage) {
        return Failure(damage->code, database.path() + ", job " + key.id + ": " + damage->detail);
    }
    return entries;
}

Result<void> check_format(SqliteDatabase& database, bool may_be_new) {
    std::int64_t format = 0;
    Result<void> done = database.run("PRAGMA user_version", {},
                                     [&](const Row& row) { format = number_in(row, 0); });
    if (!done || format == SqliteJournal::kFormat || (format == 0 && may_be_new)) {
        return done;
    }
    const bool is_newer = format > SqliteJournal::kFormat;
    return invalid_argument(database.path() + " has format " + std::to_string(format) + ", of " +
                            (is_newer ? "a newer" : "an earlier") + " regroup; this one reads " +
                            std::to_string(SqliteJournal::kFormat) +
                            (is_newer ? ""
                                      : ": replay it with that one; for a daemon, move it "
                                        "away, and the nodes whose jobs it kept form them "
                                        "anew"));
}

Result<std::vector<std::pair<std::int64_t, StoredJob>>> read_jobs(SqliteDatabase& database,
                                                                  const std::string& where) {
    std::vector<std::pair<std::int64_t, StoredJob>> jobs;
    const Result<void> read = database.run(
        "SELECT row, id, began_ms, ended_ms IS NOT NULL FROM jobs " + where + " ORDER BY row", {},
        [&](const Row& row) {
            jobs.push_back({number_in(row, 0),
                            {{text_in(row, 1), number_in(row, 2)}, {}, number_in(row, 3) != 0}});
        });
    if (!read) {
        return read.error();
    }
    return jobs;
}

}  // namespace

SqliteJournal::SqliteJournal(std::string directory, UniqueFd lock, SqliteDatabase database,
                             std::size_t job_bytes_max, std::size_t ended_bytes_max)
    : directory_(std::move(directory)),
      lock_(std::move(lock)),
      database_(std::move(database)),
      job_bytes_max_(job_bytes_max),
      ended_bytes_max_(ended_bytes_max) {}

SqliteJournal::~SqliteJournal() {
    database_.reset();
}

Result<std::unique_ptr<SqliteJournal>> SqliteJournal::open(const std::string& directory,
                                                           std::int64_t wall_ms,
                                                           std::size_t job_bytes_max,
                                                           std::size_t ended_bytes_max) {
    if (const Result<void> made = files::make_own_folder(directory, 0700); !made) {
        return Failure(Errc::system,
                       "cannot create the directory " + directory + ": " + made.error().detail);
    }
    Result<UniqueFd> lock_held = lock(directory);
    if (!lock_held) {
        return lock_held.error();
    }
    Result<SqliteDatabase> database =
        SqliteDatabase::open(directory + kFile, SqliteDatabase::Access::read_write);
    if (!database) {
        return database.error();
    }
    // Not make_unique: the constructor is private.
    std::unique_ptr<SqliteJournal> journal(new SqliteJournal(
        directory, *std::move(lock_held), std::move(*database), job_bytes_max, ended_bytes_max));
    if (const Result<void> prepared = journal->prepare(wall_ms); !prepared) {
        return prepared.error();
    }
    return journal;
}

// A broken file stays in place: it may hold running jobs that a person can still recover.
Result<void> SqliteJournal::prepare(std::int64_t wall_ms) {
    Result<void> done = set_up(wall_ms);
    if (done || done.error().code == Errc::invalid_argument) {
        return done;
    }
    if (done.error().code == Errc::overloaded) {
        return Failure(Errc::overloaded, done.error().detail + kMakeRoom);
    }
    return Failure(done.error().code, done.error().detail +
                                          "; repair it (sqlite3's .recover may), or move it away, "
                                          "and the nodes whose jobs it kept form them anew");
}

Result<void> SqliteJournal::set_up(std::int64_t wall_ms) {
    Result<void> done = check_format(*database_, /*may_be_new=*/true);
    // Some builds of SQLite overwrite what is deleted. On a full disk there is no room for that.
    for (const char* pragma : {"PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL",
                               "PRAGMA secure_delete = FAST"}) {
        done = done ? database_->run(pragma) : done;
    }
    if (!done) {
        return done;
    }
    done = database_->transact([&] {
        Result<void> all =
            database_->run("PRAGMA user_version = " + std::to_string(SqliteJournal::kFormat));
        for (const char* table : kSchema) {
            all = all ? database_->run(table) : all;
        }
        return all ? prune(wall_ms) : all;
    });
    done = done ? database_->limit_growth() : done;
    if (done) {
        static_cast<void>(database_->grow(1));  // A full disk is found by the first write.
    }
    return done;
}

Result<void> SqliteJournal::prune(std::int64_t wall_ms) {
    const std::string old =
        "SELECT row FROM (SELECT row, ended_ms, bytes, row_number() OVER newest AS rank, "
        "sum(bytes) OVER newest AS together, "
        "sum(bytes) OVER (PARTITION BY id ORDER BY ended_ms DESC, row DESC) AS of_id "
        "FROM jobs WHERE ended_ms IS NOT NULL "
        "WINDOW newest AS (ORDER BY ended_ms DESC, row DESC)) "
        "WHERE ended_ms < ? OR rank > ? OR together > ? OR (of_id > ? AND of_id > bytes)";
    const std::vector<SqliteDatabase::Value> bounds{
        wall_ms - kEndedMsMax, static_cast<std::int64_t>(kEndedMax), as_number(ended_bytes_max_),
        as_number(job_bytes_max_)};
    const Result<void> entries =
        database_->run("DELETE FROM entries WHERE job IN (" + old + ")", bounds);
    return entries ? database_->run("DELETE FROM jobs WHERE row IN (" + old + ")", bounds)
                   : entries;
}

void SqliteJournal::start(Hooks hooks) {
    hooks_ = std::move(hooks);
    std::vector<KeptJob> jobs;
    auto stored = read_jobs(*database_, "WHERE ended_ms IS NULL");
    if (!stored) {
        give_up(stored.error());
        hooks_.lead({});
        return;
    }
    for (auto& [row, job] : *stored) {
        const auto numbers = std::make_shared<Numbers>(Numbers{row, 0, 0, nullptr});
        jobs_[job.key] = numbers;
        jobs.push_back(
            {job.key, false, [this, key = job.key, numbers]() -> Result<std::vector<Entry>> {
                 if (!database_) {
                     return Failure(Errc::system, "the journal is broken");
                 }
                 return read_page(*database_, key, numbers->row, numbers->records, numbers->bytes);
             }});
    }
    hooks_.lead(std::move(jobs));
}

Result<void> SqliteJournal::insert(const JobKey& job, Numbers& numbers,
                                   std::span<const std::string> records) {
    if (numbers.row == 0) {
        // The clock may have gone back since an earlier job of this name began.
        const Result<void> begun = database_->run(
            "INSERT INTO jobs (id, began_ms) SELECT ?1, max(?2, ifnull(max(began_ms) + 1, 0)) "
            "FROM jobs WHERE id = ?1 RETURNING row",
            {job.id, job.began_ms}, [&](const Row& row) { numbers.row = number_in(row, 0); });
        if (!begun) {
            return begun;
        }
    }
    for (const std::string& record : records) {
        numbers.bytes += record.size();
        const Result<void> inserted =
            database_->run("INSERT INTO entries (job, number, entry) VALUES (?, ?, ?)",
                           {numbers.row, ++numbers.records,
                            numbered(static_cast<std::size_t>(numbers.records), record)});
        if (!inserted) {
            return inserted;
        }
    }
    return database_->run("UPDATE jobs SET records = ? WHERE row = ?",
                          {numbers.records, numbers.row});
}

void SqliteJournal::write_some(const JobKey& job, Numbers& numbers,
                               std::span<const std::string>& records) {
    std::size_t count = 0;
    std::size_t bytes = 0;
    do {
        bytes += records[count++].size();
    } while (count < records.size() && bytes + records[count].size() <= kTransactionBytes);
    Numbers after;
    transact(bytes, [&]() -> Result<void> {
        after = numbers;  // It may be tried several times.
        return after.left_out == nullptr ? insert(job, after, records.first(count))
                                         : Result<void>();
    });
    numbers = after;
    records = records.subspan(count);
}

void SqliteJournal::append(const JobKey& job, std::vector<Entry> entries,
                           std::function<void()> done) {
    if (!jobs_[job]) {
        jobs_[job] = std::make_shared<Numbers>();
    }
    const std::shared_ptr<Numbers> numbers = jobs_[job];
    const std::vector<std::string> records = to_records(entries);
    for (std::span<const std::string> rest = records;
         database_ && numbers->left_out == nullptr && !rest.empty();) {
        write_some(job, *numbers, rest);
    }
    if (database_ && numbers->bytes >= job_bytes_max_) {
        hooks_.log("job " + job.id + " takes " + std::to_string(numbers->bytes >> 20U) +
                   " MiB in the journal: no more entries are kept; if the daemon ends now, its "
                   "nodes form the job anew");
        end(job);
        *numbers = Numbers{0, 0, 0, kTooLarge};
        jobs_[job] = numbers;
    }
    done();
}

void SqliteJournal::end(const JobKey& job) {
    const auto found = jobs_.find(job);
    if (found == jobs_.end()) {
        return;
    }
    const std::int64_t wall_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count();
    if (database_ && found->second->row != 0) {
        transact(0, [&]() -> Result<void> {
            const Result<void> marked =
                database_->run("UPDATE jobs SET ended_ms = ?, bytes = ? WHERE row = ?",
                               {wall_ms, as_number(found->second->bytes), found->second->row});
            // A daemon that runs for months starts many jobs.
            return marked ? prune(wall_ms) : marked;
        });
    }
    jobs_.erase(found);
}

void SqliteJournal::transact(std::size_t bytes, const std::function<Result<void>()>& work) {
    // Pages that are not full, and those of the index.
    const std::size_t room = 4 * bytes + (std::size_t{64} << 10U);
    Result<void> done = database_->transact(work);
    if (!done && done.error().code == Errc::overloaded) {
        // Perhaps only the log was full, or the file can still grow.
        database_->checkpoint();
        if (database_->grow(room)) {
            is_full_ = false;
        }
        done = database_->transact(work);
    }
    while (!done && done.error().code == Errc::overloaded && drop_one(done.error())) {
        database_->checkpoint();
        done = database_->transact(work);
    }
    if (!done) {
        give_up(done.error());
    }
}

SqliteJournal::Jobs::iterator SqliteJournal::largest() {
    auto found = jobs_.end();
    std::size_t most = 0;
    auto first = jobs_.end();  // Of its id.
    std::size_t bytes = 0;
    for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
        if (job->second->row == 0) {
            continue;
        }
        if (first == jobs_.end() || first->first.id != job->first.id) {
            first = job;
            bytes = 0;
        }
        bytes += job->second->bytes;
        if (found == jobs_.end() || bytes > most) {
            found = first;
            most = bytes;
        }
    }
    return found;
}

bool SqliteJournal::drop_one(const Failure& why) {
    std::int64_t row = 0;
    const Result<void> read = database_->run(
        "SELECT row FROM jobs WHERE ended_ms IS NOT NULL ORDER BY ended_ms, row LIMIT 1", {},
        [&](const Row& found) { row = number_in(found, 0); });
    const auto open = read && row == 0 ? largest() : jobs_.end();
    row = open == jobs_.end() ? row : open->second->row;
    if (row == 0) {
        return false;
    }
    const Result<void> dropped = database_->transact([&] {
        const Result<void> entries = database_->run("DELETE FROM entries WHERE job = ?", {row});
        return entries ? database_->run("DELETE FROM jobs WHERE row = ?", {row}) : entries;
    });
    if (!dropped) {
        return false;
    }
    if (open == jobs_.end()) {
        if (!std::exchange(is_full_, true)) {
            hooks_.log(why.detail +
                       "; the oldest ended jobs are deleted from it; make room on its disk");
        }
        return true;
    }
    *open->second = Numbers{0, 0, 0, kNoRoom};
    // An earlier job of the same id is kept only for its verdict.
    if (const auto next = std::next(open);
        next == jobs_.end() || next->first.id != open->first.id) {
        hooks_.log(why.detail + "; job " + open->first.id +
                   " is the largest in it, so no more entries of that job are kept: if the daemon "
                   "ends now, its nodes form the job anew; make room on its disk");
    }
    return true;
}

std::string SqliteJournal::trouble(const JobKey& job) const {
    if (!database_) {
        return "no entries are kept since the journal failed (" + failure_ +
               "): if the daemon ends, the nodes form the job anew";
    }
    const auto found = jobs_.find(job);
    return found != jobs_.end() && found->second->left_out != nullptr ? found->second->left_out
                                                                      : "";
}

void SqliteJournal::give_up(const Failure& failure) {
    failure_ = failure.detail;
    const std::string path = database_->path();
    database_.reset();
    bool aside = true;
    for (const char* suffix : {"", "-wal", "-shm"}) {
        const std::string from = path + suffix;
        const bool there = ::access(from.c_str(), F_OK) == 0;
        aside = (!there || std::rename(from.c_str(), (path + ".broken" + suffix).c_str()) == 0) &&
                aside;
    }
    hooks_.log(failure.detail +
               "; the daemon continues without a journal: all jobs continue, but if it "
               "ends, their nodes form them anew when it is back" +
               (aside ? " (the old journal is now " + path + ".broken)"
                      : ", and " + path + " must be removed by hand before that") +
               (failure.code == Errc::overloaded ? kMakeRoom : ""));
}

Result<std::vector<StoredJob>> SqliteJournal::jobs_in(const std::string& file) {
    Result<SqliteDatabase> database = SqliteDatabase::open(file, SqliteDatabase::Access::read_only);
    if (!database) {
        return database.error();
    }
    if (const Result<void> fits = check_format(*database, /*may_be_new=*/false); !fits) {
        return fits.error();
    }
    const auto stored = read_jobs(*database, "");
    if (!stored) {
        return stored.error();
    }
    std::vector<StoredJob> jobs;
    for (const auto& [row, job] : *stored) {
        jobs.push_back(job);
    }
    return jobs;
}

Result<KeptJob> SqliteJournal::job_in(const std::string& file, const JobKey& key) {
    Result<SqliteDatabase> opened = SqliteDatabase::open(file, SqliteDatabase::Access::read_only);
    if (!opened) {
        return opened.error();
    }
    const auto database = std::make_shared<SqliteDatabase>(std::move(*opened));
    if (const Result<void> fits = check_format(*database, /*may_be_new=*/false); !fits) {
        return fits.error();
    }
    const auto stored = read_jobs(*database, "");
    if (!stored) {
        return stored.error();
    }
    for (const auto& [row, job] : *stored) {
        if (job.key == key) {
            return KeptJob{key, job.ended,
                           [database, key, at = row, number = std::int64_t{0},
                            bytes = std::size_t{0}]() mutable {
                               return read_page(*database, key, at, number, bytes);
                           }};
        }
    }
    return Failure(Errc::invalid_argument, file + " has no job " + key.id);
}

}  // namespace regroup::journal
