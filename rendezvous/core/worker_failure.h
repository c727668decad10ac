// SPDX-License-Identifier: Apache-2.0
//
// Failures of workers, as agents report them and the daemon charges them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace regroup::rendezvous {

/// The kind of a failure. The charge depends on it.
enum class FailureKind : std::uint8_t {
    failure,     ///< An exit code, a signal, or an error at its start.
    hang,        ///< The agent ended the worker because the round hung on it.
    user_error,  ///< The worker said that a restart cannot help.
    retry,       ///< The worker said that the program is not to blame.
    bad_node,    ///< The worker said that its node is bad.
};
[[nodiscard]] std::string_view to_string(FailureKind kind) noexcept;

/// Whether a worker's last error came from another rank, as the SDK knows it. Such a failure is
/// never the root of others. The further from the root, the larger the value.
enum class PeerError : std::uint8_t {
    none,     ///< Not as far as is known.
    awaited,  ///< Another rank did not come in time.
    lost,     ///< Another rank had ended, or had given up.
};
[[nodiscard]] std::string_view to_string(PeerError error) noexcept;

/// How one worker failed.
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
    /// It could not be started, and the same start may succeed later: its node is short of
    /// something, or the file of the program does not answer.
    bool may_start_later = false;
    /// Wall-clock time on the node, for display only: "2026-11-21 10:05:26".
    std::string time;
    /// Its last lines on stderr; its file on the node, or empty.
    std::string last_output;
    std::string log_file;
    /// A sentence that explains the end, for example that the kernel was out of memory; or empty.
    std::string evidence;
    /// The worker's own error message or traceback, shortened, and the file on the node with the
    /// full text. Empty when the worker wrote none.
    std::string error_message;
    std::string error_file;
    /// The worker announced before its end that it fails and that its peers are not the cause.
    /// `error_message` begins with its reason.
    bool announced = false;
    /// The worker exited with code 0 in the middle of its training; `exit_code` is set to 1.
    bool unfinished = false;
    /// The worker was ended for a hang in which only silence was known of all workers. It is
    /// probably to blame, but not certainly.
    bool by_silence = false;
    PeerError peer_error = PeerError::none;

    /// It ended in order at a step at which all ranks stop, because one of them was asked to
    /// (stop_requested), and not by its node.
    [[nodiscard]] bool has_stopped() const noexcept {
        return unfinished && kind == FailureKind::retry;
    }
    friend bool operator==(const WorkerFailure&, const WorkerFailure&) = default;
};

/// True if `a` is the root failure rather than `b`, whichever was reported first. When a process is
/// killed or crashes, its peers end with an error or abort. A process that fails for its own reason
/// may take longer to end than its peers. An error that came from another rank is outranked by any
/// other. Reports of one event come from several nodes and may
/// overtake each other.
[[nodiscard]] bool outranks(const WorkerFailure& a, const WorkerFailure& b) noexcept;
/// The code that a shell would show: the exit code, 128 + signal, or 127 when it could not start.
[[nodiscard]] int shell_exit_code(const WorkerFailure& failure) noexcept;

}  // namespace regroup::rendezvous
