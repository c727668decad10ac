// SPDX-License-Identifier: Apache-2.0
#include "launcher/say.h"

#include <cstdio>
#include <unistd.h>
#include <utility>

#include "agent/process/status_line.h"
#include "launcher/host.h"
#include "rendezvous/base/printable.h"

namespace regroup::launcher {

void complain(const std::string& who, const std::string& line) {
    std::fprintf(stderr, "%s: %s\n", who.c_str(), printable(line).c_str());
}

void print(const std::string& line) {
    std::puts(printable(line).c_str());
}

void print(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
        print(line);
    }
}

namespace {

constexpr Duration kLineInterval = std::chrono::seconds(10);
constexpr Duration kInPlaceInterval = std::chrono::milliseconds(200);

}  // namespace

Progress::Progress(std::string who)
    : who_(std::move(who)),
      in_place_(terminal_has_cursor() && agent::is_own_terminal(STDERR_FILENO)),
      due_(after(SteadyClock().now(), in_place_ ? kInPlaceInterval : kLineInterval)) {}

void Progress::show(const std::string& text) {
    const Instant now = SteadyClock().now();
    if (now < due_) {
        return;
    }
    if (in_place_) {
        const std::string row = agent::row_of(STDERR_FILENO, who_ + ": " + printable(text));
        std::fprintf(stderr, "%s%s", agent::kEraseRow, row.c_str());
        std::fflush(stderr);
        due_ = after(now, kInPlaceInterval);
        shown_ = true;
    } else {
        complain(who_, text);
        due_ = after(now, kLineInterval);
    }
}

void Progress::clear() {
    if (std::exchange(shown_, false)) {
        std::fputs(agent::kEraseRow, stderr);
        std::fflush(stderr);
    }
}

}  // namespace regroup::launcher
