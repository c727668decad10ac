// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace regroup {

/// Failures by the reaction that they call for. A code exists only if some caller reacts to it
/// differently; finer distinctions belong in the accompanying sentence. The numbers are those of
/// regroup_errc in C, where 0 is success.
enum class Errc {
    invalid_argument = 1,   ///< The request itself is wrong; repeating it can never succeed.
    deadline_exceeded = 2,  ///< No answer in time. The operation may or may not have happened.
    disconnected = 3,       ///< The peer or the connection is gone. Reconnect, or leave the round.
    overloaded = 4,         ///< The peer cannot serve now. Retry after a back-off, never at once.
    fenced = 5,             ///< The round is over. Stop this round's work and join the next one.
    closed = 6,             ///< The job has ended, with or without success. There is no next round.
    system = 7,             ///< The operating system refused; the sentence names call and errno.
};

/// The enumerator's own name: the spelling used in messages, logs and on the wire.
[[nodiscard]] std::string_view to_string(Errc code) noexcept;

}  // namespace regroup
