// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "tests/support/temporary_directory.h"

namespace regroup::testing {

/// A program to start. The first element of `command` is a path.
struct ProgramSpec {
    std::vector<std::string> command;
    std::vector<std::string> environment;  ///< "NAME=value", over what every Program gets.
    std::string directory;                 ///< Empty: a fresh one, removed with the Program.
};

/// A real program under test. The destructor kills it with all its descendants. Its stdout and
/// stderr go to one file, in the order of writing. From the environment of the test it gets only
/// variables that find programs and configure sanitizers.
class Program {
   public:
    explicit Program(const ProgramSpec& spec);
    ~Program();
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] std::string output() const;
    [[nodiscard]] const std::string& directory() const { return directory_; }
    /// The program and all its living descendants, found by an inherited environment variable. So
    /// processes that left the session or lost their parents are included. Zombies do not count.
    [[nodiscard]] std::vector<pid_t> family() const;

    void signal(int number) const;
    /// Sends SIGSTOP and waits until all its threads are stopped. False at a time-out.
    [[nodiscard]] bool stop() const;
    /// True once `text` has been printed; false if it has not within `limit` or the program ended.
    [[nodiscard]] bool prints(const std::string& text,
                              std::chrono::milliseconds limit = std::chrono::seconds(40)) {
        return prints_behind(0, text, limit);
    }
    /// The same for the output after its first `begin` bytes.
    [[nodiscard]] bool prints_behind(std::size_t begin, const std::string& text,
                                     std::chrono::milliseconds limit = std::chrono::seconds(40));
    /// As a shell shows it: the code, or 128 + signal; nothing if it still runs after `limit`.
    std::optional<int> wait(std::chrono::milliseconds limit = std::chrono::seconds(60));
    [[nodiscard]] bool running() { return !wait(std::chrono::milliseconds(0)).has_value(); }
    /// The signal by which it ended; 0 while it runs, or if it exited.
    [[nodiscard]] int ended_by() const { return signal_; }

   private:
    pid_t pid_ = -1;
    std::optional<TemporaryDirectory> own_directory_;
    std::string directory_;
    std::string output_file_;
    std::string mark_;
    std::optional<int> status_;
    int signal_ = 0;
};

/// Polls `condition` until it holds; false after `limit`.
bool eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds limit = std::chrono::seconds(40));

/// The whole file, or "" if it cannot be read.
[[nodiscard]] std::string read_file(const std::string& path);
/// The lines of `text`, without their ends.
[[nodiscard]] std::vector<std::string> lines_of(const std::string& text);
/// A TCP port that was free a moment ago, outside of the kernel's ephemeral range.
[[nodiscard]] std::uint16_t unused_port();
/// False for a process that has ended, reaped or not.
[[nodiscard]] bool is_alive(pid_t pid);
/// The direct children of `pid`, zombies included.
[[nodiscard]] std::vector<pid_t> children_of(pid_t pid);
/// Pids of processes that were started with "`name`=`value`" in their environment.
[[nodiscard]] std::vector<pid_t> pids_with_variable(const std::string& name,
                                                    const std::string& value);

}  // namespace regroup::testing
