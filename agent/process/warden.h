// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <sys/types.h>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/files/unique_fd.h"

namespace regroup::agent {

/// The signals that the agent handles by default.
inline const std::vector<int> kAgentSignals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

/// True if this process inherited the signal `number` as ignored, as nohup does with SIGHUP. Such a
/// signal stays ignored, except SIGINT and SIGQUIT from another process.
[[nodiscard]] bool is_ignored(int number) noexcept;

/// Call in the agent when its warden was killed. Kills all descendants, calls `clean_up`, prints a
/// message on stderr, and ends with code 1. (The parent of the warden has seen SIGKILL.)
[[noreturn]] void end_without_warden(const std::function<void()>& clean_up) noexcept;

/// The agent's side of the warden: a process that cleans up after `kill -9` of the agent.
///
///     shell ── warden ── agent ── workers, each with a session of its own ── their children
///
/// The warden keeps the pid that the user knows. It passes signals on, waits for the agent, and
/// ends with the exit status of the agent. If the agent ends without say_goodbye(), the warden,
/// which has adopted all orphans below it, kills them all, including those with a session of their
/// own, and prints one line on stderr. It spares children that this process had before. If the
/// warden is killed, the agent reads the end of file from fd(), and must call end_without_warden().
///
/// The agent leads its own process group, so that Ctrl-C reaches it once, through the warden.
/// Ctrl-Z stops the warden only: the job must go on, or its node would count as lost.
///
/// Known limit: if warden and agent are killed at the same moment, the workers die with the agent
/// (parent-death signal), but a child of a worker that has left its process group survives. Only a
/// process that outlives both could kill it.
class Warden {
   public:
    /// A message that the daemon must get if the agent dies.
    struct LastWord {
        std::string address;  ///< Of the daemon: IPv4 or IPv6.
        std::uint16_t port = 0;
        std::string name;  ///< The daemon's host as the user wrote it.
        std::string bytes;
    };
    using Deliver = std::function<void(const LastWord& word)>;
    /// Removes files that the agent would have removed. Must not throw.
    using CleanUp = std::function<void()>;

    /// Forks this process and returns in the child, the agent. The parent, the warden, never
    /// returns. Call it before there is any thread, event loop or signal handler. Both processes
    /// become subreapers, with SIGCHLD at its default and /dev/null for each closed descriptor of
    /// 0, 1 and 2. Errors: system.
    ///
    /// The warden passes on those of `signals` that are not ignored. Others have their usual
    /// effect. A SIGINT or SIGQUIT that is ignored, as in the background job of a script, is passed
    /// on if a process has sent it, and not if it comes from the keyboard.
    ///
    /// If the agent ends without say_goodbye(), the warden calls `deliver` with its last word, if
    /// there is one, and `clean_up` when all descendants are dead.
    static Result<Warden> split(const std::vector<int>& signals, const Deliver& deliver,
                                const CleanUp& clean_up);

    /// Delivers one byte, the number, for each signal that the warden received, and the end of file
    /// when the warden is gone. See QuitSignals.
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }

    /// Tells the warden that the agent has cleaned up and ends now.
    void say_goodbye() noexcept;

    /// Sets the last word, which the warden delivers if the agent ends without say_goodbye().
    /// Replaces the former one. Costs no system call. One with more than kLastWordBytesMax bytes
    /// is not delivered.
    void set_last_word(const LastWord& word) noexcept;
    static constexpr std::size_t kLastWordBytesMax = 32000;

   private:
    struct LastWords;
    struct Unmap {
        void operator()(LastWords* words) const noexcept;
    };

    Warden(UniqueFd fd, std::unique_ptr<LastWords, Unmap> words)
        : fd_(std::move(fd)), words_(std::move(words)) {}
    static void send_last_word(const LastWords* words, const Deliver& deliver);
    [[noreturn]] static void stand_guard(const LastWords* words, const Deliver& deliver,
                                         const CleanUp& clean_up, pid_t agent,
                                         std::set<pid_t> inherited, UniqueFd own_end,
                                         const sigset_t& watched);

    UniqueFd fd_;
    std::unique_ptr<LastWords, Unmap> words_;  ///< Shared with the warden; may be null.
};

}  // namespace regroup::agent
