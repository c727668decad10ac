// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.h"

#include <csignal>
#include <ctime>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/failure_text.h"
#include "agent/process/linux_launcher.h"
#include "agent/process/process_tree.h"
#include "agent/worker_environment.h"
#include "rendezvous/net/listen.h"

namespace regroup::agent {

namespace {

namespace asio = boost::asio;
using rendezvous::FromDaemon;

// How long descendants that left their group may resist SIGKILL before the round is given over.
constexpr Duration kTreeLimit = std::chrono::seconds(5);
constexpr Duration kGoodbyeLimit = std::chrono::seconds(1);
// The first failed attempts to reach the daemon are silent: it is often only a moment late.
constexpr Duration kTroubleFirst = std::chrono::milliseconds(500);
constexpr Duration kTroubleLimit = std::chrono::seconds(30);

std::string wall_clock_time() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
    return text;
}

std::string round_name(RoundId round) { return "round " + std::to_string(number(round)); }

std::string rank_range(std::uint32_t first, std::uint32_t count) {
    return count == 1 ? "rank " + std::to_string(first)
                      : "ranks " + std::to_string(first) + "-" + std::to_string(first + count - 1);
}

}  // namespace
