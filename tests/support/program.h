// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace regroup::testing {

/// What to start. The first element of `command` is a path.
struct ProgramSpec {
    std::vector<std::string> command;
    std::vector<std::string> environment;  ///< "NAME=value", over the test's own.
    std::string directory;                 ///< Empty: a fresh one, removed with the Program.
};

/// A real program under test: started, watched through what it prints, killed if it outlives the
/// test. Its stdout and stderr go to one file, in the order in which they were written.
class Program {
   public:
    explicit Program(const ProgramSpec& spec);
    ~Program();
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] std::string output() const;
    [[nodiscard]] const std::string& directory() const { return directory_; }

    void signal(int number) const;
    /// True once `text` has been printed; false if it has not within `limit` or the program ended.
    [[nodiscard]] bool prints(const std::string& text,
                              std::chrono::milliseconds limit = std::chrono::seconds(20));
    /// As a shell shows it: the code, or 128 + signal; nothing if it still runs after `limit`.
    std::optional<int> wait(std::chrono::milliseconds limit = std::chrono::seconds(40));

   private:
    pid_t pid_ = -1;
    std::string directory_;
    bool owns_directory_ = false;
    std::string output_file_;
    std::optional<int> status_;
};

/// Polls `condition` until it holds; false after `limit`.
bool eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds limit = std::chrono::seconds(10));

/// A folder that is removed with the object.
class TemporaryDirectory {
   public:
    TemporaryDirectory();
    ~TemporaryDirectory();
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }

   private:
    std::string path_;
};

/// The whole file, or "" if it cannot be read.
[[nodiscard]] std::string read_file(const std::string& path);
/// A TCP port of 127.0.0.1 that was free a moment ago.
[[nodiscard]] std::uint16_t unused_port();
/// Pids whose environment holds "`name`=`value`".
[[nodiscard]] std::vector<pid_t> pids_with_variable(const std::string& name,
                                                    const std::string& value);

}  // namespace regroup::testing
