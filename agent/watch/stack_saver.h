// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/process/linux_launcher.h"
#include "rendezvous/base/clock.h"

namespace regroup::agent {

/// Whose stacks.
struct StackSubject {
    std::uint32_t rank = 0;
    pid_t pid = 0;
    std::string doing;  ///< For the head of the file; or empty.
};

struct StackOptions {
    /// Where a program is sought that walks the stacks of another process: eu-stack, which is ten
    /// times as fast, else gdb. The value of PATH.
    std::string search_path;
    /// For all processes together. Who is not done by then has only the kernel's view.
    Duration limit = std::chrono::milliseconds(4500);
    std::size_t at_once = 16;  ///< Processes that are walked at the same time.
};

struct SavedStacks {
    std::size_t files = 0;
    /// "by eu-stack", "as the kernel sees them (neither eu-stack nor gdb is installed)".
    std::string how;
    std::string complaint;  ///< What went wrong, in a sentence; or empty.
};

/// `folder`, or the first of `folder`-2, `folder`-3 and so on that holds nothing of these ranks
/// yet: stacks that an earlier run of the job, or an earlier alarm, has left are kept. All nodes
/// that write into one folder come to the same one.
[[nodiscard]] std::filesystem::path unused_folder(const std::filesystem::path& folder,
                                                  const std::vector<StackSubject>& subjects);

/// Writes down where each thread of some processes is, before they are killed: FOLDER/rank5.txt for
/// each (and rank5.PID.txt for some of its descendants), which has the kernel's view
/// (kernel_view.h) and then the stacks of the program itself, if there is a tool for it. The tool
/// stops its process for a moment; if it has to be killed, the process is made to run on.
///
/// The tools are children that `launcher` knows. One thread; all references outlive this.
class StackSaver {
   public:
    StackSaver(boost::asio::io_context& io, const Clock& clock, LinuxLauncher& launcher,
               StackOptions options);
    /// Kills the tools that still run, and drops `on_done`.
    ~StackSaver();
    StackSaver(const StackSaver&) = delete;
    StackSaver& operator=(const StackSaver&) = delete;

    /// Makes `folder`, and calls `on_done` from the event loop once all files are written, after
    /// the limit at the latest. Each file begins with `heading`, a line. One call at a time: a new
    /// one ends the last, whose `on_done` is dropped.
    void save(const std::filesystem::path& folder, const std::vector<StackSubject>& subjects,
              const std::string& heading, std::function<void(const SavedStacks&)> on_done);

   private:
    struct Run;

    boost::asio::io_context& io_;
    const Clock& clock_;
    LinuxLauncher& launcher_;
    StackOptions options_;
    std::unique_ptr<Run> run_;
};

}  // namespace regroup::agent
