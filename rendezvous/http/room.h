// SPDX-License-Identifier: Apache-2.0
//
// The client that has to leave when those of the door take too much. Pure.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "rendezvous/http/connection.h"
#include "rendezvous/http/limits.h"

namespace regroup::http {

using Connections = std::set<std::shared_ptr<Connection>>;

/// The one that leaves for a new connection: of those that have proved nothing, the longest idle of
/// the address that has most of them. So a flood from one address pushes out itself, and no probe
/// from another one. If all have proved who they are: of those that wait for no answer, the longest
/// idle of the peer that has most connections. If all are busy, the one that has taken longest to
/// read its answer, if that is longer than Limits::slow_limit. May be null.
[[nodiscard]] std::shared_ptr<Connection> leaves_for(const Connections& all,
                                                     const Connection& newcomer, Instant now,
                                                     const Limits& limits);

/// The newest viewer of the peer that has the most, if that has more than the newcomer's. May be
/// null.
[[nodiscard]] std::shared_ptr<Connection> leaves_for_viewer(const Connections& all,
                                                            const std::string& newcomer);

/// If all texts that are being sent, and `text`, have more than `bytes_max` bytes: the slowest
/// reader of the peer whose readers hold the most bytes. A text counts once, however many read it.
[[nodiscard]] std::shared_ptr<Connection> leaves_for_text(
    const Connections& all, const std::shared_ptr<const std::string>& text, std::size_t bytes_max);

}  // namespace regroup::http
