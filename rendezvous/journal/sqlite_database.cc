// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/sqlite_database.h"

#include <cerrno>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "rendezvous/files/own_file.h"

namespace regroup::journal {

namespace {

// Only `regroup replay` reads while the daemon writes, and a reader blocks no writer in WAL mode.
constexpr int kBusyLimitMs = 1000;
constexpr mode_t kPrivate = 0600;
constexpr int kPrimaryCode = 0xff;  // Of an extended one.

struct Finalize {
    void operator()(sqlite3_stmt* statement) const noexcept { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

int bind(sqlite3_stmt* statement, int at, const SqliteDatabase::Value& value) {
    if (const auto* number = std::get_if<std::int64_t>(&value)) {
        return sqlite3_bind_int64(statement, at, *number);
    }
    const auto& text = std::get<std::string>(value);
    // Static: the values outlive the statement.
    return sqlite3_bind_text64(statement, at, text.data(), text.size(), nullptr, SQLITE_UTF8);
}

SqliteDatabase::Row row_of(sqlite3_stmt* statement) {
    SqliteDatabase::Row row;
    for (int i = 0; i < sqlite3_column_count(statement); ++i) {
        if (sqlite3_column_type(statement, i) == SQLITE_INTEGER) {
            row.emplace_back(std::int64_t{sqlite3_column_int64(statement, i)});
            continue;
        }
        const auto* text = sqlite3_column_text(statement, i);
        const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement, i));
        row.emplace_back(text == nullptr ? std::string()
                                         : std::string(reinterpret_cast<const char*>(text), size));
    }
    return row;
}

/// A journal has the secrets of agents. Creates the file, or narrows the rights of an existing one
/// and of its companions; SQLite gives new companions the rights of the file. Must be called before
/// SQLite opens the file: the end of another descriptor would release SQLite's locks.
Result<void> make_private(const std::string& path) {
    for (const char* suffix : {"", "-wal", "-shm"}) {
        const std::string file = path + suffix;
        struct stat there{};
        const bool is_companion = *suffix != '\0';
        if (is_companion && ::lstat(file.c_str(), &there) != 0) {
            continue;
        }
        const Result<UniqueFd> fd =
            files::open_own(file, O_RDWR | (is_companion ? 0 : O_CREAT), kPrivate);
        if (!fd) {
            return Failure(fd.error().code, "cannot open " + file + ": " + fd.error().detail);
        }
        if (::fchmod(fd->get(), kPrivate) != 0) {
            return system_failure("cannot make " + file + " readable by this user only", errno);
        }
    }
    return {};
}

}  // namespace

void SqliteDatabase::Close::operator()(sqlite3* handle) const noexcept {
    sqlite3_close_v2(handle);
}

Failure SqliteDatabase::failure(const std::string& what) const {
    const int code = sqlite3_errcode(handle_.get()) & kPrimaryCode;
    const int error = code == SQLITE_IOERR ? sqlite3_system_errno(handle_.get()) : 0;
    const bool no_room = code == SQLITE_FULL || error == EDQUOT || error == EFBIG;
    const std::string reason = error == EFBIG
                                   ? "the limit on the size of files is reached (ulimit -f)"
                                   : sqlite3_errmsg(handle_.get());
    return {no_room ? Errc::overloaded : Errc::system, what + " " + path_ + ": " + reason};
}

Result<SqliteDatabase> SqliteDatabase::open(const std::string& path, Access access) {
    const int flags = access == Access::read_only ? SQLITE_OPEN_READONLY
                                                  : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    if (access == Access::read_write) {
        if (const Result<void> done = make_private(path); !done) {
            return done.error();
        }
    }
    sqlite3* handle = nullptr;
    const int code = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
    SqliteDatabase database(path, handle);
    if (code != SQLITE_OK) {
        return handle == nullptr ? Failure(Errc::system, "cannot open " + path + ": out of memory")
                                 : database.failure("cannot open");
    }
    sqlite3_busy_timeout(handle, kBusyLimitMs);
    return database;
}

Result<void> SqliteDatabase::run(const std::string& sql, const std::vector<Value>& values,
                                 const std::function<void(const Row&)>& on_row) {
    sqlite3_stmt* raw = nullptr;
    const int length = static_cast<int>(sql.size());
    if (sqlite3_prepare_v2(handle_.get(), sql.data(), length, &raw, nullptr) != SQLITE_OK) {
        return failure("cannot use");
    }
    const Statement statement(raw);
    int at = 0;
    for (const Value& value : values) {
        if (bind(raw, ++at, value) != SQLITE_OK) {
            return failure("cannot use");
        }
    }
    int code = SQLITE_ROW;
    while ((code = sqlite3_step(raw)) == SQLITE_ROW) {
        if (on_row) {
            on_row(row_of(raw));
        }
    }
    if (code != SQLITE_DONE) {
        // For SQLite a COMMIT is a read-only statement, but it is where a full disk shows.
        const bool reads = sqlite3_stmt_readonly(raw) != 0 && sqlite3_column_count(raw) > 0;
        return failure(reads ? "cannot read" : "cannot write to");
    }
    return {};
}

Result<void> SqliteDatabase::transact(const std::function<Result<void>()>& work) {
    if (Result<void> begun = run("BEGIN IMMEDIATE"); !begun) {
        return begun;
    }
    Result<void> done = work();
    if (done) {
        done = run("COMMIT");
    }
    if (!done) {
        // ROLLBACK fails if SQLite has rolled back already; nothing more is to be done then.
        static_cast<void>(run("ROLLBACK"));
    }
    return done;
}

Result<std::int64_t> SqliteDatabase::number(const std::string& pragma) {
    std::int64_t value = 0;
    const Result<void> read = run("PRAGMA " + pragma, {}, [&](const Row& row) {
        const auto* number = std::get_if<std::int64_t>(row.data());
        value = number == nullptr ? 0 : *number;
    });
    return read ? Result<std::int64_t>(value) : read.error();
}

Result<void> SqliteDatabase::limit_growth() {
    int step = kStepBytes;
    sqlite3_file_control(handle_.get(), "main", SQLITE_FCNTL_CHUNK_SIZE, &step);
    // A disk without room for the log is found by the first write.
    sqlite3_file* log = nullptr;
    sqlite3_file_control(handle_.get(), "main", SQLITE_FCNTL_JOURNAL_POINTER,
                         static_cast<void*>(&log));
    if (log != nullptr && log->pMethods != nullptr) {
        sqlite3_int64 size = step;
        log->pMethods->xFileControl(log, SQLITE_FCNTL_CHUNK_SIZE, &step);
        log->pMethods->xFileControl(log, SQLITE_FCNTL_SIZE_HINT, &size);
    }
    return run("PRAGMA max_page_count = 1");  // SQLite makes it the present number of pages.
}

Result<void> SqliteDatabase::grow(std::size_t bytes) {
    const Result<std::int64_t> pages = number("page_count");
    const Result<std::int64_t> page_bytes = pages ? number("page_size") : pages;
    if (!page_bytes || *page_bytes == 0) {
        return failure("cannot read");
    }
    constexpr auto kStep = static_cast<std::int64_t>(kStepBytes);
    const std::int64_t wanted = *pages * *page_bytes + static_cast<std::int64_t>(bytes);
    sqlite3_int64 size = (wanted + kStep - 1) / kStep * kStep;
    // SQLite takes the room from the disk. It keeps all of it as long as the last step is in use.
    if (sqlite3_file_control(handle_.get(), "main", SQLITE_FCNTL_SIZE_HINT, &size) != SQLITE_OK) {
        return Failure(Errc::overloaded, "cannot make " + path_ + " larger");
    }
    return run("PRAGMA max_page_count = " + std::to_string(size / *page_bytes));
}

void SqliteDatabase::checkpoint() {
    static_cast<void>(run("PRAGMA wal_checkpoint(PASSIVE)"));
}

}  // namespace regroup::journal
