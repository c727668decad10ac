// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "journal_stories.h"
#include "rendezvous/journal/replay.h"
#include "rendezvous/journal/sqlite_journal.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_directory.h"

namespace regroup::journal {
namespace {

using regroup::testing::lines_of;

/// While it exists, this process cannot make a file larger: the disk is full.
class FullDisk {
   public:
    explicit FullDisk(std::size_t file_bytes_max) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit{file_bytes_max, before_.rlim_max};
        handler_ = std::signal(SIGXFSZ, SIG_IGN);
        EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    }
    ~FullDisk() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }
    FullDisk(const FullDisk&) = delete;
    FullDisk& operator=(const FullDisk&) = delete;

   private:
    rlimit before_{};
    void (*handler_)(int) = SIG_DFL;
};

class JournalSqlite : public ::testing::Test {
   protected:
    [[nodiscard]] std::string directory() const { return folder_ + "/state"; }
    [[nodiscard]] std::string file() const { return directory() + "/journal.sqlite3"; }

    [[nodiscard]] Result<StoredJob> whole(const JobKey& key) const {
        const Result<KeptJob> job = SqliteJournal::job_in(file(), key);
        return job ? read_all(*job) : job.error();
    }

    std::unique_ptr<SqliteJournal> opened(std::int64_t wall_ms = 1000000) {
        return std::move(*SqliteJournal::open(directory(), wall_ms));
    }
    /// Opens and starts a journal; puts the restored jobs into `jobs` and its lines into `log`.
    template <class... Limits>
    std::unique_ptr<SqliteJournal> started(Limits... limits) {
        auto journal = std::move(
            *SqliteJournal::open(directory(), 1000000, static_cast<std::size_t>(limits)...));
        journal->start({[this](const std::vector<KeptJob>& taken) {
                            jobs.clear();
                            for (const KeptJob& job : taken) {
                                Result<StoredJob> all = read_all(job);
                                if (all) {
                                    jobs.push_back(std::move(*all));
                                } else {
                                    unreadable += all.error().detail + "\n";
                                }
                            }
                        },
                        [](const std::string&) { FAIL() << "it has nobody to follow"; },
                        [this](const std::string& line) { log += line + "\n"; }});
        return journal;
    }
    void append(SqliteJournal& journal, const StoredJob& job) {
        for (const Entry& entry : job.entries) {
            journal.append(job.key, {entry}, [this] { ++done; });
        }
    }

    /// A journal begins, gets these entries, and ends.
    void keep(const StoredJob& job) { append(*started(), job); }
    /// Changes the file, as nothing of ours would.
    void change_file(const std::vector<std::string>& statements) const {
        auto database = SqliteDatabase::open(file(), SqliteDatabase::Access::read_write);
        ASSERT_TRUE(database);
        for (const std::string& statement : statements) {
            ASSERT_TRUE(database->run(statement)) << statement;
        }
    }

    static constexpr std::size_t kEntriesPerMegabyte = 1000;
    static std::vector<Entry> entries_of(double megabytes) {
        Entry entry;
        entry.event = rendezvous::StopRequested{"operator", std::string(950, 'x')};
        return {static_cast<std::size_t>(megabytes * kEntriesPerMegabyte), entry};
    }
    static void fill(SqliteJournal& journal, const JobKey& job, double megabytes) {
        for (std::int64_t tenths = std::lround(megabytes * 10); tenths > 0; --tenths) {
            journal.append(job, entries_of(0.1), [] {});
        }
    }
    /// The jobs that a reader finds, ended or not.
    [[nodiscard]] std::vector<JobKey> stored() const {
        std::vector<JobKey> keys;
        const auto listed = SqliteJournal::jobs_in(file());
        for (const StoredJob& job : *listed) {
            keys.push_back(job.key);
        }
        return keys;
    }
    [[nodiscard]] double megabytes_of(const JobKey& key) const {
        const Result<StoredJob> job = whole(key);
        return job ? static_cast<double>(job->entries.size()) / kEntriesPerMegabyte : 0;
    }

    // The database takes one step from the disk at its start, and no second one fits.
    static constexpr std::size_t kOneStep = SqliteDatabase::kStepBytes * 3 / 2;
    testing::TemporaryDirectory temporary_;
    std::string folder_ = temporary_.path();
    std::vector<StoredJob> jobs;
    std::string log;
    std::string unreadable;
    std::size_t done = 0;
    const StoredJob story = regroup::testing::story_of_two_rounds().job();
};

TEST_F(JournalSqlite, JobIsRestoredUnchanged) {
    {
        const auto journal = started();
        EXPECT_TRUE(jobs.empty());
        append(*journal, story);
        EXPECT_EQ(done, story.entries.size());
    }
    const auto journal = started();
    ASSERT_EQ(jobs.size(), 1U);
    EXPECT_EQ(lines_of(jobs[0]), lines_of(story));
    EXPECT_EQ(log, "");
}

TEST_F(JournalSqlite, OnlyThisUserCanReadAJournalOldOrNew) {
    namespace fs = std::filesystem;
    constexpr fs::perms kAllRead = fs::perms::owner_read | fs::perms::owner_write |
                                   fs::perms::group_read | fs::perms::others_read;
    const auto expect_private = [&] {
        for (const char* suffix : {"", "-wal", "-shm"}) {
            const fs::perms rights = fs::status(file() + suffix).permissions();
            EXPECT_EQ(rights, fs::perms::owner_read | fs::perms::owner_write) << suffix;
        }
    };
    const mode_t usual = ::umask(022);
    fs::create_directories(directory());
    {
        const auto journal = opened();
        append(*journal, story);
        expect_private();
        for (const char* suffix : {"", "-wal", "-shm"}) {
            fs::copy_file(file() + suffix, file() + ".copy" + suffix);
        }
    }
    for (const char* suffix : {"", "-wal", "-shm"}) {
        fs::rename(file() + ".copy" + suffix, file() + suffix);  // As after a crash.
        fs::permissions(file() + suffix, kAllRead);
    }
    const auto journal = opened();
    expect_private();
    ::umask(usual);
}

TEST_F(JournalSqlite, RestoredJobAppendsAfterItsEntries) {
    for (int life = 0; life < 2; ++life) {
        const auto journal = started();
        append(*journal, story);
    }
    const Result<StoredJob> job = whole(story.key);
    ASSERT_TRUE(job) << job.error().detail;
    EXPECT_EQ(job->entries.size(), 2 * story.entries.size());
}

TEST_F(JournalSqlite, JobsThatBeginInOneMillisecondAreKept) {
    StoredJob other = story;
    other.key.id = "other";
    {
        const auto journal = started();
        append(*journal, other);
        append(*journal, story);
        journal->end(story.key);
        append(*journal, story);
        EXPECT_EQ(journal->trouble(story.key), "");
    }
    const auto journal = started();
    ASSERT_EQ(jobs.size(), 2U);
    EXPECT_EQ(jobs[0].key, other.key);
    EXPECT_EQ(jobs[1].key.id, story.key.id);
    EXPECT_EQ(jobs[1].entries.size(), story.entries.size());
    EXPECT_EQ(log, "");
}

TEST_F(JournalSqlite, EndedJobIsNotRestoredButCanBeReplayed) {
    {
        const auto journal = started();
        append(*journal, story);
        journal->end(story.key);
    }
    const auto journal = started();
    EXPECT_TRUE(jobs.empty());
    const auto listed = SqliteJournal::jobs_in(file());
    ASSERT_EQ(listed->size(), 1U);
    EXPECT_TRUE(listed->front().ended);
    const Result<StoredJob> job = whole(listed->front().key);
    ASSERT_TRUE(job) << job.error().detail;
    EXPECT_EQ(job->entries.size(), story.entries.size());
    EXPECT_FALSE(SqliteJournal::job_in(file(), {"nobody", 1}));
}

TEST_F(JournalSqlite, EndedJobsAreForgottenInTime) {
    {
        const auto journal = started();
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(SqliteJournal::kEndedMax) + 5; ++i) {
            const JobKey key{"job", i};
            journal->append(key, {Entry{}}, [] {});
            journal->end(key);
        }
        journal->append({"alive", 1}, {Entry{}}, [] {});
    }
    opened();
    EXPECT_EQ(SqliteJournal::jobs_in(file())->size(), SqliteJournal::kEndedMax + 1);
    opened(std::int64_t{1} << 50U);
    const auto left = SqliteJournal::jobs_in(file());
    ASSERT_EQ(left->size(), 1U);
    EXPECT_EQ(left->front().key.id, "alive");
}

TEST_F(JournalSqlite, LongLivedDaemonForgetsEndedJobsToo) {
    StoredJob ended = story;
    const auto journal = started();
    for (std::size_t i = 0; i < SqliteJournal::kEndedMax + 5; ++i) {
        ended.key.began_ms = static_cast<std::int64_t>(i + 1);
        journal->append(ended.key, {ended.entries[0]}, [] {});
        journal->end(ended.key);
    }
    const auto kept = SqliteJournal::jobs_in(file());
    ASSERT_EQ(kept->size(), SqliteJournal::kEndedMax);
    EXPECT_EQ(kept->front().key.began_ms, 6);
}

TEST_F(JournalSqlite, EndedJobsTakeABoundedNumberOfBytesTogether) {
    const auto journal = started(/*job_bytes_max=*/std::size_t{1} << 20U,
                                 /*ended_bytes_max=*/550000);
    fill(*journal, {"open", 1}, 0.8);
    for (const char* id : {"a", "b", "c", "d"}) {
        fill(*journal, {id, 1}, 0.2);
        journal->end({id, 1});
    }
    EXPECT_THAT(stored(), ElementsAre(JobKey{"open", 1}, JobKey{"c", 1}, JobKey{"d", 1}));
}

TEST_F(JournalSqlite, EndedJobsOfOneIdTakeNoMoreThanOneJob) {
    const auto journal = started(/*job_bytes_max=*/450000);
    for (std::int64_t life = 1; life <= 5; ++life) {
        fill(*journal, {"again", life}, 0.2);
        fill(*journal, {"other" + std::to_string(life), 1}, 0.2);
        journal->end({"again", life});
        journal->end({"other" + std::to_string(life), 1});
    }
    EXPECT_THAT(stored(), ElementsAre(JobKey{"other1", 1}, JobKey{"other2", 1}, JobKey{"other3", 1},
                                      JobKey{"again", 4}, JobKey{"other4", 1}, JobKey{"again", 5},
                                      JobKey{"other5", 1}));
}

TEST_F(JournalSqlite, FileOfAnEarlierRegroupIsRefusedAndStays) {
    std::filesystem::create_directories(directory());
    change_file({"PRAGMA user_version = 2"});
    EXPECT_THAT(SqliteJournal::open(directory(), 1), fails(Errc::invalid_argument, file()));
    EXPECT_TRUE(std::filesystem::exists(file()));
}

TEST_F(JournalSqlite, EntriesLargerThanTheRoomOfTheLogAreKept) {
    const auto journal = started();
    journal->append({"several", 1}, entries_of(12), [] {});
    Entry entry;
    entry.assigned.resize(50000, {std::string(200, 'n'), {}});
    journal->append({"single", 1}, {entry}, [] {});
    EXPECT_GT(std::filesystem::file_size(file()), 5 * SqliteDatabase::kStepBytes);
    EXPECT_DOUBLE_EQ(megabytes_of({"several", 1}), 12);
    EXPECT_EQ(journal->trouble({"single", 1}), "");
    EXPECT_EQ(log, "");
}

TEST_F(JournalSqlite, OldestEndedJobsMakeRoomOnAFullDisk) {
    const FullDisk disk(kOneStep);
    {
        const auto journal = started();
        fill(*journal, {"running", 1}, 0.1);
        for (const char* id : {"a", "b"}) {
            fill(*journal, {id, 1}, 1.5);
            journal->end({id, 1});
        }
        fill(*journal, {"new", 1}, 2.0);
        fill(*journal, {"running", 1}, 0.1);
        EXPECT_EQ(journal->trouble({"running", 1}), "");
        EXPECT_EQ(journal->trouble({"new", 1}), "");
        EXPECT_THAT(log, HasSubstr(file())) << "the operator is told";
    }
    EXPECT_THAT(stored(), ElementsAre(JobKey{"running", 1}, JobKey{"b", 1}, JobKey{"new", 1}));
    EXPECT_DOUBLE_EQ(megabytes_of({"running", 1}), 0.2);
    EXPECT_DOUBLE_EQ(megabytes_of({"new", 1}), 2.0);
}

TEST_F(JournalSqlite, FullDiskCostsOnlyTheLargestJobItsEntries) {
    const FullDisk disk(kOneStep);
    {
        const auto journal = started();
        fill(*journal, {"small", 1}, 1.0);
        for (int i = 0; i < 100 && log.empty(); ++i) {
            fill(*journal, {"large", 1}, 0.1);
        }
        EXPECT_EQ(journal->trouble({"large", 1}), SqliteJournal::kNoRoom);
        fill(*journal, {"large", 1}, 0.1);
        fill(*journal, {"small", 1}, 1.0);
        fill(*journal, {"third", 1}, 1.0);
        EXPECT_EQ(journal->trouble({"small", 1}), "");
        EXPECT_EQ(journal->trouble({"third", 1}), "");
        journal->end({"large", 1});
        EXPECT_EQ(journal->trouble({"large", 1}), "");
    }
    EXPECT_DOUBLE_EQ(megabytes_of({"small", 1}), 2.0);
    EXPECT_DOUBLE_EQ(megabytes_of({"third", 1}), 1.0);
    EXPECT_THAT(stored(), ElementsAre(JobKey{"small", 1}, JobKey{"third", 1}));
    EXPECT_FALSE(std::filesystem::exists(file() + ".broken"));
}

TEST_F(JournalSqlite, OnAFullDiskAnIdPaysForItsEarlierJobsFirst) {
    const FullDisk disk(kOneStep);
    const auto journal = started();
    fill(*journal, {"again", 1}, 1.3);
    fill(*journal, {"small", 1}, 1.4);
    fill(*journal, {"again", 2}, 1.4);
    EXPECT_EQ(journal->trouble({"again", 2}), "");
    EXPECT_EQ(journal->trouble({"small", 1}), "");
    EXPECT_THAT(stored(), ElementsAre(JobKey{"small", 1}, JobKey{"again", 2}));
}

TEST_F(JournalSqlite, FileGrowsAgainWhenTheDiskHasRoom) {
    const auto journal = started();
    {
        const FullDisk disk(kOneStep);
        fill(*journal, {"ended", 1}, 1.5);
        journal->end({"ended", 1});
        fill(*journal, {"a", 1}, 2.8);
    }
    fill(*journal, {"b", 1}, 10.0);
    EXPECT_EQ(journal->trouble({"a", 1}), "");
    EXPECT_DOUBLE_EQ(megabytes_of({"b", 1}), 10.0);
}

TEST_F(JournalSqlite, SecondDaemonIsRefusedAndToldTheHolder) {
    const auto journal = opened();
    EXPECT_THAT(SqliteJournal::open(directory(), 1),
                fails(Errc::overloaded, "in use by process " + std::to_string(::getpid())));
}

TEST_F(JournalSqlite, JobWithDamagedEntriesIsFormedAnew) {
    keep(story);
    change_file(
        {R"(UPDATE entries SET entry = '2 {"at_us":1,"event":"danced"}' WHERE number = 2)"});
    const auto journal = started();
    EXPECT_TRUE(jobs.empty());
    EXPECT_THAT(unreadable, HasSubstr("record 2"));
}

TEST_F(JournalSqlite, JobWithMissingOrMovedRecordsIsFormedAnewAndNoOther) {
    const std::size_t count = story.entries.size();
    ASSERT_GE(count, 4U);
    const std::string last = std::to_string(count);
    const std::vector<std::string> damages[] = {
        {"DELETE FROM entries WHERE job = 1 AND number = 1"},
        {"DELETE FROM entries WHERE job = 1 AND number = 2"},
        {"DELETE FROM entries WHERE job = 1 AND number = " + last},
        {"DELETE FROM entries WHERE job = 1 AND number > 1"},
        {"DELETE FROM entries WHERE job = 1"},
        // The gap is closed.
        {"DELETE FROM entries WHERE job = 1 AND number = 2",
         "UPDATE entries SET number = number - 1 WHERE job = 1 AND number > 2",
         "UPDATE jobs SET records = records - 1 WHERE row = 1"},
        // Two records change places.
        {"UPDATE entries SET number = -1 WHERE job = 1 AND number = 2",
         "UPDATE entries SET number = 2 WHERE job = 1 AND number = 3",
         "UPDATE entries SET number = 3 WHERE job = 1 AND number = -1"},
        // One record twice.
        {"UPDATE entries SET entry = (SELECT entry FROM entries WHERE job = 1 AND number = 2) "
         "WHERE job = 1 AND number = 3"},
        {"INSERT INTO entries SELECT 1, " + last +
         " + 1, entry FROM entries WHERE job = 1 "
         "AND number = 2"},
    };
    for (const std::vector<std::string>& damage : damages) {
        std::filesystem::remove_all(directory());
        {
            const auto journal = started();
            for (const char* id : {"damaged", "whole"}) {
                append(*journal, {{id, 1}, story.entries});
            }
        }
        change_file(damage);
        jobs.clear();
        unreadable.clear();
        const auto journal = started();
        ASSERT_EQ(jobs.size(), 1U) << damage[0];
        EXPECT_EQ(jobs[0].key.id, "whole");
        EXPECT_THAT(unreadable, HasSubstr("job damaged: ")) << damage[0];
    }
}

TEST_F(JournalSqlite, BrokenDatabaseIsRenamedAndTheDaemonContinues) {
    const auto journal = started();
    append(*journal, story);
    change_file({"DROP TABLE entries"});
    EXPECT_EQ(journal->trouble(story.key), "");
    done = 0;
    append(*journal, story);
    EXPECT_EQ(done, story.entries.size());
    EXPECT_THAT(log, HasSubstr("continues without a journal"));
    EXPECT_THAT(journal->trouble(story.key),
                saying("no entries are kept since the journal failed (", "no such table"));
    EXPECT_NE(journal->trouble({"another", 1}), "");
    EXPECT_FALSE(std::filesystem::exists(file()));
    EXPECT_TRUE(std::filesystem::exists(file() + ".broken"));
}

TEST_F(JournalSqlite, FailedCommitIsReportedAsAFailedWrite) {
    std::filesystem::create_directories(directory());
    Result<SqliteDatabase> database =
        SqliteDatabase::open(file(), SqliteDatabase::Access::read_write);
    ASSERT_TRUE(database);
    ASSERT_TRUE(database->run("PRAGMA foreign_keys = ON"));
    ASSERT_TRUE(database->run("CREATE TABLE a (row INTEGER PRIMARY KEY)"));
    ASSERT_TRUE(database->run(
        "CREATE TABLE b (a INTEGER REFERENCES a (row) DEFERRABLE INITIALLY DEFERRED)"));
    EXPECT_THAT(database->transact([&] { return database->run("INSERT INTO b (a) VALUES (1)"); }),
                fails("cannot write to " + file()));
}

TEST_F(JournalSqlite, JobThatIsTooLargeIsNotKeptFurtherAndNotRestored) {
    auto journal = started(/*job_bytes_max=*/3000);
    append(*journal, story);
    EXPECT_EQ(log, "");
    std::size_t stories = 1;
    while (log.empty() && stories < 10) {
        append(*journal, story);
        ++stories;
    }
    EXPECT_THAT(log, HasSubstr("no more entries are kept"));
    EXPECT_EQ(journal->trouble(story.key), Journal::kTooLarge);
    EXPECT_EQ(journal->trouble({"another", 1}), "");
    append(*journal, story);
    EXPECT_EQ(done, (stories + 1) * story.entries.size()) << "and the job goes on";
    journal.reset();
    started();
    EXPECT_TRUE(jobs.empty());
    const Result<StoredJob> kept = whole(story.key);
    ASSERT_TRUE(kept) << kept.error().detail;
    EXPECT_LE(kept->entries.size(), stories * story.entries.size());
}

TEST_F(JournalSqlite, FileThatAnotherUserMayHavePreparedIsNotUsed) {
    namespace fs = std::filesystem;
    fs::create_directories(directory());
    fs::permissions(directory(), fs::perms::all | fs::perms::sticky_bit);
    const fs::path precious = fs::path(folder_) / "precious";
    std::ofstream(precious) << "precious";
    for (const char* name : {"/lock", "/journal.sqlite3"}) {
        const std::string path = directory() + name;
        fs::remove(path);
        fs::create_symlink(precious, path);
        if (::lchown(path.c_str(), 12345, 12345) != 0) {
            GTEST_SKIP() << "only root can make a link of another user";
        }
        EXPECT_THAT(SqliteJournal::open(directory(), 1), fails(path + " is a symbolic link"));
        fs::remove(path);
        ASSERT_EQ(::mkfifo(path.c_str(), 0666), 0);
        EXPECT_THAT(SqliteJournal::open(directory(), 1), fails(path + ": it is no regular file"));
        fs::remove(path);
    }
    EXPECT_EQ(fs::file_size(precious), 8U);
}

TEST_F(JournalSqlite, FileThatIsNoDatabaseIsRefused) {
    std::filesystem::create_directories(directory());
    std::ofstream(file()) << "this is not a database, but long enough to be looked at as one";
    EXPECT_THAT(SqliteJournal::open(directory(), 1), fails("not a database"));
    EXPECT_FALSE(SqliteJournal::jobs_in(folder_ + "/nothing"));
}

}  // namespace
}  // namespace regroup::journal
