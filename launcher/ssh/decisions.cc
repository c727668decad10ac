// SPDX-License-Identifier: Apache-2.0
#include "launcher/ssh/decisions.h"

#include <algorithm>

#include <boost/asio/ip/address.hpp>

#include "rendezvous/base/ensure.h"
#include "rendezvous/base/exit_code.h"

namespace regroup::launcher::ssh {
namespace {

std::optional<boost::asio::ip::address> parse_address(const std::string& text) {
    boost::system::error_code error;
    const auto address = boost::asio::ip::make_address(text, error);
    return error ? std::nullopt : std::optional(address);
}

bool is_reachable(const ReadyHost& host) {
    const auto address = parse_address(host.address);
    return address && !address->is_loopback();
}

}  // namespace

std::size_t choose_head(const std::vector<ReadyHost>& ready) {
    ENSURE(!ready.empty());
    const auto found = std::ranges::find_if(ready, is_reachable);
    return found == ready.end() ? 0 : static_cast<std::size_t>(found - ready.begin());
}

std::string endpoint_host(const ReadyHost& head) {
    const auto address = parse_address(head.address);
    const bool is_link_local = address && address->is_v6() && address->to_v6().is_link_local();
    return !address || is_link_local ? head.name : head.address;
}

CommandEnd common_ending(const std::vector<HostEnding>& endings, std::optional<std::size_t> head,
                         bool by_user) {
    const auto first = [&](auto holds) -> const CommandEnd* {
        const auto found = std::ranges::find_if(
            endings, [&](const HostEnding& ending) { return ending && holds(*ending); });
        return found == endings.end() ? nullptr : &**found;
    };
    const auto succeeded = [](const CommandEnd& ending) {
        return ending.by_verdict && ending.exit_code == 0;
    };
    const HostEnding of_head = head ? endings.at(*head) : std::nullopt;
    // A head that was not needed has not failed.
    const bool has_failed = of_head && of_head->by_verdict && !succeeded(*of_head) &&
                            of_head->exit_code != kExitNoRendezvous;
    if (const CommandEnd* good = first(succeeded); good != nullptr && !has_failed) {
        return *good;
    }
    const CommandEnd* ended_by_signal =
        first([](const CommandEnd& ending) { return ending.signal != 0; });
    if (by_user && ended_by_signal != nullptr) {
        return *ended_by_signal;
    }
    if (has_failed) {
        return *of_head;
    }
    if (const CommandEnd* judged =
            first([](const CommandEnd& ending) { return ending.by_verdict; })) {
        return *judged;
    }
    const auto failed = [](const CommandEnd& ending) {
        return ending.signal != 0 || (ending.exit_code != 0 && ending.exit_code != kExitRequeue);
    };
    if (const CommandEnd* bad = first(failed)) {
        return *bad;
    }
    const CommandEnd* any = first([](const CommandEnd&) { return true; });
    return any != nullptr ? *any : CommandEnd{.exit_code = kExitSshFailed};
}

}  // namespace regroup::launcher::ssh
