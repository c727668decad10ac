// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/result.h"

struct sqlite3;

namespace regroup::journal {

/// A connection to an SQLite database. Calls block: most take well under a millisecond. Errors of
/// every function: overloaded, if the disk has no room for a write; else system. Both have the file
/// and SQLite's message.
class SqliteDatabase {
   public:
    using Value = std::variant<std::int64_t, std::string>;
    using Row = std::vector<Value>;

    /// `read_write` creates the file, and makes it readable by this user only.
    enum class Access { read_only, read_write };
    static Result<SqliteDatabase> open(const std::string& path, Access access);

    /// Runs one statement with `values` for its question marks. Calls `on_row` for each row.
    Result<void> run(const std::string& sql, const std::vector<Value>& values = {},
                     const std::function<void(const Row&)>& on_row = nullptr);
    /// Runs `work` as one transaction: all of it or nothing.
    Result<void> transact(const std::function<Result<void>()>& work);

    /// From now on the file grows only by grow(), and both the file and its write-ahead log have
    /// taken their room from the disk before they use it. So a full disk shows while transactions
    /// that delete rows still succeed. Requires that a transaction has written in WAL mode.
    Result<void> limit_growth();
    /// Lets the file grow by `bytes` at least, in steps of kStepBytes. Errors: overloaded.
    Result<void> grow(std::size_t bytes);
    /// Also the room of the write-ahead log.
    static constexpr std::size_t kStepBytes = std::size_t{4} << 20U;
    /// Copies the write-ahead log to the file, so that the log's room can be used again.
    void checkpoint();

    [[nodiscard]] const std::string& path() const noexcept { return path_; }

   private:
    struct Close {
        void operator()(sqlite3* handle) const noexcept;
    };
    SqliteDatabase(std::string path, sqlite3* handle) : path_(std::move(path)), handle_(handle) {}
    [[nodiscard]] Failure failure(const std::string& what) const;
    Result<std::int64_t> number(const std::string& pragma);

    std::string path_;
    std::unique_ptr<sqlite3, Close> handle_;
};

}  // namespace regroup::journal
