// SPDX-License-Identifier: Apache-2.0
#include "agent/process/own_limits.h"

#include <csignal>
#include <string>

namespace regroup::agent {
namespace {

std::optional<rlimit>& limit_before() noexcept {
    static std::optional<rlimit> limit;
    return limit;
}

std::vector<int>& ignored() noexcept {
    static std::vector<int> signals;
    return signals;
}

}  // namespace

void raise_descriptor_limit() noexcept {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) {
        return;
    }
    const rlimit raised{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) {
        limit_before() = limit;
    }
}

Result<void> require_descriptors(std::uint64_t needed) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) {
        return {};
    }
    if (limit.rlim_max < needed) {
        return Failure(Errc::system, "this process needs " + std::to_string(needed) +
                                         " descriptors, and it may open " +
                                         std::to_string(limit.rlim_max));
    }
    raise_descriptor_limit();
    return {};
}

std::optional<rlimit> descriptor_limit_of_programs() noexcept {
    return limit_before();
}

void outlive_limits() noexcept {
    for (const int number : {SIGXFSZ, SIGXCPU}) {
        if (::signal(number, SIG_IGN) == SIG_DFL) {
            ignored().push_back(number);
        }
    }
}

const std::vector<int>& ignored_limit_signals() noexcept {
    return ignored();
}

}  // namespace regroup::agent
