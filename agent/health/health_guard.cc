// SPDX-License-Identifier: Apache-2.0
#include "agent/health/health_guard.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace regroup::agent {

namespace {

constexpr Duration kFailureLimitMin = std::chrono::seconds(10);
constexpr std::size_t kToldMax = 1000;
// A difference of clocks that is surely a mistake, and still fits a Duration.
constexpr auto kAgeMax = std::chrono::hours(24 * 365 * 100);

bool is_loopback(const std::string& address) {
    return address.starts_with("127.") || address == "::1";
}

std::string address_for_others(const rendezvous::Offer& offer) {
    if (offer.address_is_explicit) {
        return offer.address;
    }
    return offer.other_addresses.empty() ? "" : offer.other_addresses.front();
}

}  // namespace

HealthGuard::HealthGuard(boost::asio::io_context& io, LinuxLauncher& launcher,
                         health::CheckOptions options, const rendezvous::JobPolicy& policy,
                         const rendezvous::Offer& offer, Say say)
    : check_(io, launcher, std::move(options)),
      failure_limit_(limit_after_failure(policy)),
      has_peers_(policy.nodes_max > 1),
      address_(address_for_others(offer)),
      say_(std::move(say)) {}

Duration HealthGuard::limit_after_failure(const rendezvous::JobPolicy& policy) {
    return std::clamp<Duration>(policy.shutdown_timeout, kFailureLimitMin, kLimit);
}

void HealthGuard::check_before_joining(OnDone on_done) {
    check_.run(kLimit, false, telling(std::move(on_done)));
}

void HealthGuard::check_after_failure(OnDone on_done) {
    if (has_peers_) {
        tell(check_.check_link(address_));
    }
    check_.run(failure_limit_, true, telling(std::move(on_done)));
}

void HealthGuard::check_while_waiting(OnDone on_done) {
    check_.run_lightly(kLimit, telling(std::move(on_done)));
}

health::NodeCheck::OnDone HealthGuard::telling(OnDone on_done) {
    return [this, on_done = std::move(on_done)](const std::vector<health::Finding>& findings) {
        tell(findings);
        on_done(health::fault(findings));
    };
}

void HealthGuard::connected(const std::string& address) {
    if (has_peers_) {
        if (!is_loopback(address)) {
            address_ = address;
        }
        tell(check_.check_link(address_));
    }
}

void HealthGuard::heard_time(std::int64_t daemon_ms) {
    if (daemon_ms == 0 || std::exchange(knows_time_, true)) {
        return;
    }
    using std::chrono::milliseconds;
    const auto now = std::chrono::duration_cast<milliseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    tell(check_.check_clock(
        std::clamp<milliseconds>(now - milliseconds(daemon_ms), -kAgeMax, kAgeMax)));
}

// A single fault is the reason why the node leaves, and is printed as such.
void HealthGuard::tell(const std::vector<health::Finding>& findings) {
    const auto faults = std::count_if(findings.begin(), findings.end(),
                                      [](const auto& finding) { return finding.refuses(); });
    for (const health::Finding& finding : findings) {
        if (finding.refuses() && faults == 1) {
            continue;
        }
        if (told_.size() < kToldMax && told_.insert(finding.text).second) {
            say_((finding.refuses() ? "health: " : "health warning: ") + finding.text + " [" +
                 std::string(to_string(finding.check)) + "]");
        }
    }
}

}  // namespace regroup::agent
