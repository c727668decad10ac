// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "agent/process/unique_fd.h"
#include "rendezvous/base/result.h"

namespace regroup::agent {

/// The signals by which people, shells and schedulers speak to the agent, unless told otherwise.
inline const std::vector<int> kAgentSignals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

/// Whether this process inherited the wish to ignore `number`, as nohup gives it for SIGHUP. Such a
/// signal stays ignored.
[[nodiscard]] bool is_ignored(int number) noexcept;

/// What an agent does when its warden was killed: ends all its descendants, says so on stderr, and
/// ends itself with code 1. (Its warden's parent has seen SIGKILL.)
[[noreturn]] void end_without_warden() noexcept;

/// The agent's bond with its warden: the process that makes `kill -9` of the agent leave nothing
/// behind.
///
///     shell ── warden ── agent ── workers, each with a session of its own ── their children
///
/// The warden keeps the pid that the user knows. It passes on the signals that it receives, waits
/// for the agent, and ends as the agent ended. If the agent ends without a goodbye, the warden,
/// to which all orphans below it now belong, kills every one of them, those with a session of
/// their own included, and says so in one line on stderr; children that this process had before
/// are left alone. If the warden is killed, the agent reads
/// the end of file from fd(), and has to end_without_warden().
///
/// The agent leads a process group of its own, so that Ctrl-C reaches it once, through the warden.
/// Ctrl-Z stops the warden alone: the job goes on, as it must, or its node would count as lost.
///
/// What remains: when warden and agent are killed at the same instant, workers die with the agent
/// (parent-death signal), but a child of theirs that has left their process group does not.
/// Nothing can end it without a process that outlives both, not even a cgroup of its own.
class Warden {
   public:
    /// Splits this process in two and returns in the child, the agent. The parent, the warden, ends
    /// inside. To be called before there is any thread, event loop or signal handler. Both get
    /// /dev/null for whichever of the descriptors 0, 1 and 2 is closed, SIGCHLD at its default, and
    /// become subreapers. Errors: system.
    ///
    /// Of `signals`, those that are not ignored are passed on; others have their usual effect.
    static Result<Warden> split(const std::vector<int>& signals);

    /// Carries one byte for each signal that the warden received, its number; then the end of
    /// file, when the warden is gone. See QuitSignals.
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }

    /// Says that the agent will end now and has cleaned up behind itself.
    void say_goodbye() noexcept;

    /// What the warden is to send to a TCP port, an IPv4 or IPv6 address, if the agent ends without
    /// a goodbye: word of its death, which others would otherwise have to guess from a connection
    /// that broke. In place of the last one. Costs no system call. More than kLastWordBytesMax
    /// bytes, or an address that is none: nothing is sent.
    void set_last_word(const std::string& address, std::uint16_t port,
                       std::string_view bytes) noexcept;
    static constexpr std::size_t kLastWordBytesMax = 32000;

   private:
    struct LastWords;
    struct Unmap {
        void operator()(LastWords* words) const noexcept;
    };

    Warden(UniqueFd fd, std::unique_ptr<LastWords, Unmap> words)
        : fd_(std::move(fd)), words_(std::move(words)) {}
    static void send_last_word(const LastWords* words) noexcept;
    [[noreturn]] static void stand_guard(const LastWords* words, pid_t agent,
                                         std::set<pid_t> inherited, UniqueFd own_end,
                                         const sigset_t& watched);

    UniqueFd fd_;
    std::unique_ptr<LastWords, Unmap> words_;  ///< Shared with the warden; null: there is none.
};

}  // namespace regroup::agent
