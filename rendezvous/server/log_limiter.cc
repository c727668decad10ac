// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/log_limiter.h"

namespace regroup::rendezvous {

void LogLimiter::log(const std::string& kind, const std::string& address, const std::string& line,
                     Instant now) {
    auto found = counts_.find({kind, address});
    if (found == counts_.end()) {
        const bool is_full = counts_.size() >= kCountsMax;
        found = counts_.try_emplace({kind, is_full ? std::string() : address}).first;
        if (found->second.until == Instant{}) {
            found->second.until = after(now, kWindow);
        }
    }
    Count& count = found->second;
    if (count.written < kLinesMax) {
        ++count.written;
        write_(line);
        return;
    }
    ++count.left_out;
    count.last = line;
}

void LogLimiter::sweep(Instant now) {
    std::erase_if(counts_, [&](const Counts::value_type& entry) {
        if (now < entry.second.until) {
            return false;
        }
        tell(entry);
        return true;
    });
}

void LogLimiter::tell(const Counts::value_type& entry) {
    const auto& [kind, address] = entry.first;
    const Count& count = entry.second;
    if (count.left_out == 1) {
        write_(count.last);
    } else if (count.left_out > 1) {
        write_(count.last + " (and " + std::to_string(count.left_out - 1) + " more like it from " +
               (address.empty() ? "many addresses" : address) + " within " +
               format_duration(kWindow) + ")");
    }
}

}  // namespace regroup::rendezvous
