// SPDX-License-Identifier: Apache-2.0
//
// The messages between `regroup launch-ssh` and the node that it has started on a host, over the
// connection of ssh. The launcher writes frames to the node's stdin. The node writes lines to its
// stdout, among the output of the workers. Each line has a random word that the workers do not
// know.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"

namespace regroup::launcher::ssh {

/// The first word after `regroup` on a host.
inline constexpr const char* kNodeCommand = "ssh-node";

// ---- From the launcher to the node, in this order.

struct Setup {
    std::string word;                      ///< Begins the node's lines.
    std::string host;                      ///< The node's name in the launcher's list.
    std::string folder;                    ///< In which the program starts.
    std::vector<std::string> environment;  ///< "NAME=VALUE", over what the host's sshd gives.
    Duration start_limit{};                ///< The longest wait for Start.
};

struct Start {
    std::uint32_t index = 0;             ///< The host's place in the launcher's list.
    std::optional<bool> is_head;         ///< Runs the daemon; nothing: the node finds out.
    std::vector<std::string> arguments;  ///< Those after `regroup run`.
    std::string token;                   ///< As text; empty: none.
};

struct Signal {
    int number = 0;
};

using Order = std::variant<Setup, Start, Signal>;

/// A frame of rendezvous/protocol/framing.h. Errors: invalid_argument if it is too large.
[[nodiscard]] Result<std::string> encode(const Order& order);
/// Errors: invalid_argument: another version of regroup, or no launcher, has written it.
[[nodiscard]] Result<Order> decode(std::string_view payload);

// ---- From the node to the launcher.

/// The node is in its folder and waits for Start.
struct Ready {
    std::string address;  ///< The host's, as the connection shows it; empty if unknown.
};
/// The node cannot take part, and ends.
struct Refused {
    std::string reason;
};
/// The node runs the daemon.
struct Serving {
    std::uint16_t port = 0;
};
/// A line about the job, which its other nodes say, too.
struct JobLine {
    std::string text;
    std::string topic;  ///< Lines of several hosts that say the same have the same.
};
/// Comes now and then, so that a dead connection is noticed: bytes that nobody confirms end it.
struct Alive {};
/// The last line.
struct Ended {
    int exit_code = 0;
    int signal = 0;
    bool by_verdict = false;          ///< The job has ended, and this is its exit code.
    std::vector<std::string> report;  ///< Lines for people, the same from all nodes of the job.
};

using Report = std::variant<Ready, Refused, Serving, JobLine, Alive, Ended>;

/// One line with its end. It is shorter than agent::LineSplitter::kLineBytesMax: a longer report
/// loses its last lines.
[[nodiscard]] std::string line_of(const std::string& word, const Report& report);
/// Nothing if no node with that word has written it. A node that could not finish a line of a
/// worker has the beginning of that line before the word; it is lost.
[[nodiscard]] std::optional<Report> parse_line(const std::string& word, std::string_view line);

}  // namespace regroup::launcher::ssh
