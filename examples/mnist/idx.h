// SPDX-License-Identifier: Apache-2.0
// Handwritten digits in the IDX format, in which MNIST comes: big-endian numbers, then bytes.
//
//     images   0x00000803   count   rows   columns   count * rows * columns bytes
//     labels   0x00000801   count   count bytes, each 0 to 9
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <vector>

namespace mnist {

inline constexpr std::size_t kImageSide = 28;
inline constexpr std::size_t kPixels = kImageSide * kImageSide;
inline constexpr std::size_t kClasses = 10;

/// An unusable file. what() names it and the wrong field.
struct IdxError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Digits {
    std::vector<std::uint8_t> pixels;  ///< [count, 28, 28], 0 for paper to 255 for ink
    std::vector<std::uint8_t> labels;  ///< [count]

    [[nodiscard]] std::size_t count() const { return labels.size(); }
    [[nodiscard]] const std::uint8_t* image(std::size_t index) const {
        return pixels.data() + index * kPixels;
    }
};

/// Reads `directory`/`prefix`-images-idx3-ubyte and -labels-idx1-ubyte. Throws IdxError.
[[nodiscard]] Digits read_digits(const std::filesystem::path& directory, const char* prefix);
/// True if these files exist.
[[nodiscard]] bool has_digits(const std::filesystem::path& directory, const char* prefix);
/// Writes them. Throws IdxError.
void write_digits(const std::filesystem::path& directory, const char* prefix, const Digits& digits);

/// Draws digits in different places, sizes and shades, on noise. Depends on the arguments alone.
[[nodiscard]] Digits draw_digits(std::size_t count, std::uint64_t seed);

}  // namespace mnist
