// SPDX-License-Identifier: Apache-2.0
//
// For LD_PRELOAD: shifts the wall clock of one program by the value of a dial, an offset in ns.
// CHAOS_CLOCK names the file of the dial. The monotonic clock stays what it is, as when an
// administrator or NTP sets the time. A time namespace could not do this: it shifts the monotonic
// clocks and not the wall clock.
#include <cstdint>
#include <cstdlib>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/chaos/dial.h"

namespace {

constexpr std::int64_t kNanoseconds = 1'000'000'000;

std::int64_t offset() noexcept {
    static const char* const path = std::getenv("CHAOS_CLOCK");
    static const regroup::chaos::Dial dial(path != nullptr ? path : "");
    return dial.get();
}

bool is_wall_clock(clockid_t clock) noexcept {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

int read_clock(clockid_t clock, timespec* result) noexcept {
    const auto code = static_cast<int>(::syscall(SYS_clock_gettime, clock, result));
    if (code == 0 && is_wall_clock(clock)) {
        const std::int64_t sum = result->tv_nsec + offset();
        std::int64_t seconds = sum / kNanoseconds;
        std::int64_t rest = sum % kNanoseconds;
        if (rest < 0) {
            rest += kNanoseconds;
            --seconds;
        }
        result->tv_sec += seconds;
        result->tv_nsec = rest;
    }
    return code;
}

}  // namespace

// The names and types of the C library.
extern "C" {

int clock_gettime(clockid_t clock, timespec* result) noexcept {
    return read_clock(clock, result);
}

int gettimeofday(timeval* __restrict result, void* __restrict /*zone*/) noexcept {
    timespec now{};
    const int code = read_clock(CLOCK_REALTIME, &now);
    result->tv_sec = now.tv_sec;
    result->tv_usec = now.tv_nsec / 1000;
    return code;
}

time_t time(time_t* result) noexcept {
    timespec now{};
    read_clock(CLOCK_REALTIME, &now);
    if (result != nullptr) {
        *result = now.tv_sec;
    }
    return now.tv_sec;
}

}  // extern "C"
