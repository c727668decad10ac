// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "rendezvous/base/clock.h"

namespace regroup::simulation {

/// The trace of a run: always as a hash, and on request as text. A failed run is repeated with
/// text, so that the thousands of runs that succeed do not pay for it.
class Trace {
   public:
    /// Keeps the last `lines_max` lines; none by default.
    explicit Trace(std::size_t lines_max = 0) : lines_max_(lines_max) {}

    [[nodiscard]] bool keeps_text() const noexcept { return lines_max_ > 0; }
    void mix(std::uint64_t value) noexcept {
        hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15ULL;
        hash_ ^= hash_ >> 29U;
    }
    void mix(const std::string& text) noexcept {
        for (const char c : text) {
            mix(static_cast<std::uint64_t>(static_cast<unsigned char>(c)));
        }
    }
    void add(Duration since_start, std::string line);

    [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
    [[nodiscard]] const std::deque<std::string>& lines() const noexcept { return lines_; }

   private:
    std::size_t lines_max_;
    std::uint64_t hash_ = 0x243f6a8885a308d3ULL;
    std::deque<std::string> lines_;
};

}  // namespace regroup::simulation
