// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace regroup {

/// Failures by the reaction that they call for. A code exists only if some caller reacts to it
/// differently; finer distinctions belong in the accompanying sentence.
enum class Errc {
    invalid_argument,   ///< The request itself is wrong; repeating it can never succeed.
    deadline_exceeded,  ///< No answer in time. The operation may or may not have happened.
    disconnected,       ///< The peer or the connection is gone. Reconnect, or leave the round.
    overloaded,         ///< The peer cannot serve now. Retry after a back-off, never at once.
    fenced,             ///< The round is over. Stop this round's work and join the next one.
    closed,             ///< The job has ended, with or without success. There is no next round.
    system,             ///< The operating system refused; the sentence names the call and errno.
};

/// The enumerator's own name: the spelling used in messages, logs and on the wire.
[[nodiscard]] std::string_view to_string(Errc code) noexcept;

}  // namespace regroup
