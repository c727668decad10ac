// SPDX-License-Identifier: Apache-2.0
//
// How workers end that were not asked to, as agents report it and the rendezvous charges it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace regroup::rendezvous {

/// What kind of end it was, by which it is charged.
enum class FailureKind : std::uint8_t {
    failure,     ///< By itself: an exit code, a signal, an error at its start.
    hang,        ///< Ended by us, because it was what a round hung on.
    user_error,  ///< It said so itself: trying again cannot help.
    retry,       ///< It said so itself: not the program's fault.
    bad_node,    ///< It said so itself.
};
[[nodiscard]] std::string_view to_string(FailureKind kind) noexcept;

/// How one worker ended that was not asked to.
struct WorkerFailure {
    FailureKind kind = FailureKind::failure;
    std::uint32_t rank = 0;
    std::uint32_t local_rank = 0;
    std::string node;  ///< The node's name.
    std::string host;
    std::int64_t pid = 0;
    /// Exit code, when it exited by itself; -1 otherwise.
    int exit_code = -1;
    /// Signal number, when a signal ended it; 0 otherwise.
    int signal = 0;
    bool core_dumped = false;
    /// Why it could not be started, when it could not; else empty.
    std::string start_error;
    /// Wall-clock time on the node, for display only: "2026-11-21 10:05:26".
    std::string time;
    /// Its last lines on stderr; its file on the node, or empty.
    std::string last_output;
    std::string log_file;
    /// What else explains the end, in a sentence: that the kernel was out of memory. Or empty.
    std::string evidence;
    /// What the worker itself said of its error: the message or traceback, shortened, and the file
    /// on the node that has all of it. Empty when it said nothing.
    std::string error_message;
    std::string error_file;
    /// It had said, unasked, that it fails, and not because of its peers: `error_message` begins
    /// with why.
    bool announced = false;
    /// It exited with code 0 in the middle of its training, which counts as `exit_code`, 1.
    bool unfinished = false;
    /// It was ended for a hang in which nothing but silence was known of anybody: that it is to
    /// blame is likely at most.
    bool by_silence = false;

    friend bool operator==(const WorkerFailure&, const WorkerFailure&) = default;
};

/// True if `a` rather than `b` began it, whichever was reported first: a process that is killed or
/// crashes takes its peers with it, and they end with an error or abort; one that fails for a
/// reason of its own may take longer over its end than they. Reports of one event come from several
/// nodes and may overtake each other.
[[nodiscard]] bool outranks(const WorkerFailure& a, const WorkerFailure& b) noexcept;
/// What a shell would show for it: the exit code, 128 + signal, or 127 when it could not start.
[[nodiscard]] int shell_exit_code(const WorkerFailure& failure) noexcept;
/// "SIGSEGV", or "signal 77" for a number without a name.
[[nodiscard]] std::string signal_name(int signal);

}  // namespace regroup::rendezvous
