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

/// A worker of which something is saved because of a hang.
struct HangSubject {
    std::uint32_t rank = 0;
    pid_t pid = 0;
    std::string doing;  ///< Its activity, for the head of the file; may be empty.
    std::uint32_t local_rank = 0;
    bool has_sdk = false;     ///< It has a link over which it can be asked for its records.
    bool is_stopped = false;  ///< It cannot answer.
};

struct StackOptions {
    /// The value of PATH, to find tools that walk the stacks of another process: eu-stack, which
    /// is ten times as fast, else gdb; and py-spy for interpreters of Python.
    std::string search_path;
    /// Time limit for all processes together. After it, the remaining files have the kernel's view
    /// only.
    Duration limit = std::chrono::milliseconds(4500);
    std::size_t at_once = 16;  ///< Number of tools that run at the same time.
};

struct SavedStacks {
    std::size_t files = 0;
    /// "by eu-stack and py-spy", "as the kernel sees them (neither eu-stack nor gdb is installed)".
    std::string how;
    std::string complaint;  ///< An error, in a sentence; or empty.
};

/// `folder`, or the first of `folder`-2, `folder`-3 and so on without files of these ranks. So the
/// stacks of earlier runs and alarms are kept. All nodes that share a file system get the same
/// result.
[[nodiscard]] std::filesystem::path unused_folder(const std::filesystem::path& folder,
                                                  const std::vector<HangSubject>& subjects);

/// Saves the stacks of processes before they are killed: FOLDER/rank5.txt for each process, and
/// rank5.PID.txt for some of its descendants. A file has the kernel's view (kernel_view.h) and, if
/// a tool is installed, the stacks of the program. The tool stops its process for a moment. If the
/// tool must be killed, the process is made to run on.
///
/// `launcher` starts the tools. One thread; all references outlive this object.
class StackSaver {
   public:
    StackSaver(boost::asio::io_context& io, const Clock& clock, LinuxLauncher& launcher,
               StackOptions options);
    /// Kills the tools that still run, and drops `on_done`.
    ~StackSaver();
    StackSaver(const StackSaver&) = delete;
    StackSaver& operator=(const StackSaver&) = delete;

    /// Makes `folder`, and calls `on_done` from the event loop once all files are written, at the
    /// latest after the limit. Each file begins with the line `heading`. A second call ends the
    /// first one and drops its `on_done`.
    void save(const std::filesystem::path& folder, const std::vector<HangSubject>& subjects,
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
