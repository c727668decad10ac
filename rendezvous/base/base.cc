// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/ensure.h"
#include "rendezvous/base/result.h"

namespace regroup {

// No instant overflows.
static_assert(after(Instant::min(), Duration::max()) < Instant());
static_assert(after(Instant() + Duration(1), Duration::max()) == Instant::max());

std::string_view to_string(Errc code) noexcept {
    switch (code) {
        case Errc::invalid_argument:
            return "invalid_argument";
        case Errc::deadline_exceeded:
            return "deadline_exceeded";
        case Errc::disconnected:
            return "disconnected";
        case Errc::overloaded:
            return "overloaded";
        case Errc::fenced:
            return "fenced";
        case Errc::closed:
            return "closed";
        case Errc::system:
            return "system";
    }
    return "unknown";
}

Failure system_failure(const std::string& what, int error_number) {
    const std::string limit =
        error_number == EFBIG ? "; the limit on the size of files is reached (ulimit -f)" : "";
    return Failure(Errc::system,
                   what + ": " + std::generic_category().message(error_number) + limit);
}

std::string format_duration(Duration duration) {
    if (duration == Duration::max()) {
        return "no limit";
    }
    const double seconds = to_seconds(duration);
    char text[32];
    if (seconds < 1.0) {
        std::snprintf(text, sizeof text, "%.0f ms", seconds * 1000.0);
    } else if (seconds < 10.0) {
        std::snprintf(text, sizeof text, "%.1f s", seconds);
    } else {
        std::snprintf(text, sizeof text, "%.0f s", seconds);
    }
    return text;
}

Instant SteadyClock::now() const noexcept {
    return std::chrono::steady_clock::now();
}

namespace base {

void ensure_failed(const char* expression, const char* file, int line) noexcept {
    std::fprintf(stderr, "regroup: broken invariant: %s (%s:%d)\n", expression, file, line);
    std::abort();
}

}  // namespace base
}  // namespace regroup
