// SPDX-License-Identifier: Apache-2.0
//
// The common part of the fuzz targets. A target is one file, with names in a namespace of its own,
// and is listed in targets.h. In the preset `fuzz` each is a program that libFuzzer drives
// (fuzzer_main.cc). In all other builds they are one program, which replay_main.cc drives.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regroup::fuzz {

/// Prints `what` and aborts.
[[noreturn]] void fail(const std::string& what);
inline void require(bool holds, const char* what) {
    if (!holds) {
        fail(what);
    }
}

struct Target {
    /// Inputs from which the mutations start, besides the files of the corpus.
    std::vector<std::string> (*seeds)();
    /// Ends the process when a property does not hold for these bytes.
    void (*test)(const std::uint8_t* bytes, std::size_t count);
};

/// Random ones, for targets that make choices of their bytes.
[[nodiscard]] std::vector<std::string> random_seeds();

/// Turns the bytes of an input into choices, from the first byte to the last. Without bytes every
/// choice is 0.
class Input {
   public:
    Input(const std::uint8_t* bytes, std::size_t count)
        : rest_(reinterpret_cast<const char*>(bytes), count) {}

    [[nodiscard]] bool empty() const noexcept { return rest_.empty(); }
    [[nodiscard]] std::uint8_t byte() {
        if (rest_.empty()) {
            return 0;
        }
        const auto value = static_cast<std::uint8_t>(rest_.front());
        rest_.remove_prefix(1);
        return value;
    }
    /// A number below `limit`, from one byte if it fits. Requires limit > 0.
    [[nodiscard]] std::uint64_t below(std::uint64_t limit) { return wide(limit > 256) % limit; }
    /// True for `of_256` of the 256 values of a byte.
    [[nodiscard]] bool chance(unsigned of_256) { return byte() >= 256 - of_256; }
    /// A number from 0 to `max`: small, near the maximum, or any.
    [[nodiscard]] std::uint64_t number(std::uint64_t max);
    /// The next bytes, at most `count_max`.
    [[nodiscard]] std::string_view bytes(std::size_t count_max) {
        const std::string_view taken = rest_.substr(0, count_max);
        rest_.remove_prefix(taken.size());
        return taken;
    }
    /// A text of at most `count_max` bytes, often short.
    [[nodiscard]] std::string text(std::size_t count_max) {
        return std::string(bytes(below(count_max + 1)));
    }
    template <class T, std::size_t N>
    [[nodiscard]] const T& one_of(const T (&all)[N]) {
        return all[below(N)];
    }

   private:
    [[nodiscard]] std::uint64_t wide(bool two) {
        const std::uint64_t low = byte();
        return two ? low | std::uint64_t{byte()} << 8U : low;
    }

    std::string_view rest_;
};

}  // namespace regroup::fuzz
