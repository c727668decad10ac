// SPDX-License-Identifier: Apache-2.0
#include "idx.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <random>
#include <string>
#include <utility>

namespace mnist {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kImageMagic = 0x00000803;
constexpr std::uint32_t kLabelMagic = 0x00000801;
constexpr std::uint32_t kCountMax = 10'000'000;

fs::path images_file(const fs::path& directory, const char* prefix) {
    return directory / (std::string(prefix) + "-images-idx3-ubyte");
}
fs::path labels_file(const fs::path& directory, const char* prefix) {
    return directory / (std::string(prefix) + "-labels-idx1-ubyte");
}

std::string hex(std::uint32_t value) {
    constexpr const char* kDigits = "0123456789abcdef";
    std::string text = "0x";
    for (int shift = 28; shift >= 0; shift -= 4) {
        text += kDigits[value >> static_cast<unsigned>(shift) & 15U];
    }
    return text;
}

/// One file, read field by field.
class IdxReader {
   public:
    explicit IdxReader(fs::path path) : path_(std::move(path)) {
        std::ifstream file(path_, std::ios::binary);
        if (!file) {
            fail(std::string("cannot be read: ") + std::strerror(errno));
        }
        bytes_.assign(std::istreambuf_iterator<char>(file), {});
    }

    std::uint32_t field(const char* name) {
        if (bytes_.size() - at_ < 4) {
            fail("ends after " + std::to_string(bytes_.size()) + " bytes, before its field '" +
                 name + "'");
        }
        std::uint32_t value = 0;
        for (int i = 0; i < 4; ++i) {
            value = value << 8U | static_cast<std::uint8_t>(bytes_[at_++]);
        }
        return value;
    }

    void expect(const char* name, std::uint32_t expected, const char* meaning) {
        const std::uint32_t value = field(name);
        if (value != expected) {
            const bool is_magic = expected > 0xff;
            fail("its field '" + std::string(name) + "' is " +
                 (is_magic ? hex(value) : std::to_string(value)) + ", not " +
                 (is_magic ? hex(expected) : std::to_string(expected)) + " (" + meaning + ")");
        }
    }

    std::uint32_t count() {
        const std::uint32_t value = field("count");
        if (value == 0 || value > kCountMax) {
            fail("its field 'count' is " + std::to_string(value) + ", not from 1 to " +
                 std::to_string(kCountMax));
        }
        return value;
    }

    /// The rest of the file.
    std::vector<std::uint8_t> rest(std::size_t expected_bytes) {
        if (bytes_.size() - at_ != expected_bytes) {
            fail("holds " + std::to_string(bytes_.size() - at_) +
                 " bytes after its header, which announces " + std::to_string(expected_bytes));
        }
        return {bytes_.begin() + static_cast<std::ptrdiff_t>(at_), bytes_.end()};
    }

    [[noreturn]] void fail(const std::string& problem) const {
        throw IdxError(path_.string() + " " + problem);
    }

   private:
    fs::path path_;
    std::string bytes_;
    std::size_t at_ = 0;
};

void write_file(const fs::path& path, std::initializer_list<std::uint32_t> header,
                const std::vector<std::uint8_t>& body) {
    std::ofstream file(path, std::ios::binary);
    for (const std::uint32_t value : header) {
        for (const unsigned shift : {24U, 16U, 8U, 0U}) {
            file.put(static_cast<char>(value >> shift & 0xffU));
        }
    }
    file.write(reinterpret_cast<const char*>(body.data()),
               static_cast<std::streamsize>(body.size()));
    file.close();
    if (!file) {
        throw IdxError(path.string() + " cannot be written: " + std::strerror(errno));
    }
}

// Seven rows of five dots.
constexpr std::array<std::array<const char*, 7>, kClasses> kGlyphs{{
    {" ### ", "#   #", "#  ##", "# # #", "##  #", "#   #", " ### "},
    {"  #  ", " ##  ", "  #  ", "  #  ", "  #  ", "  #  ", " ### "},
    {" ### ", "#   #", "    #", "   # ", "  #  ", " #   ", "#####"},
    {" ### ", "#   #", "    #", "  ## ", "    #", "#   #", " ### "},
    {"   # ", "  ## ", " # # ", "#  # ", "#####", "   # ", "   # "},
    {"#####", "#    ", "#### ", "    #", "    #", "#   #", " ### "},
    {"  ## ", " #   ", "#    ", "#### ", "#   #", "#   #", " ### "},
    {"#####", "    #", "   # ", "  #  ", "  #  ", " #   ", " #   "},
    {" ### ", "#   #", "#   #", " ### ", "#   #", "#   #", " ### "},
    {" ### ", "#   #", "#   #", " ####", "    #", "   # ", " ##  "},
}};

void draw(std::uint8_t label, std::mt19937_64& random, std::uint8_t* image) {
    // No distribution of the standard library: those differ between platforms.
    const auto below = [&random](std::size_t bound) {
        return static_cast<std::size_t>(random() >> 33U) % bound;
    };
    for (std::size_t i = 0; i < kPixels; ++i) {
        image[i] = static_cast<std::uint8_t>(below(60));
    }
    const std::size_t width = 3 + below(2);  // of a dot
    const std::size_t height = 3;            // of a dot
    const std::size_t left = (kImageSide - 5 * width) / 2 - 2 + below(5);
    const std::size_t top = (kImageSide - 7 * height) / 2 - 2 + below(5);
    const std::size_t ink = 110 + below(100);
    for (std::size_t y = 0; y < 7 * height; ++y) {
        for (std::size_t x = 0; x < 5 * width; ++x) {
            if (kGlyphs[label][y / height][x / width] == '#') {
                image[(top + y) * kImageSide + left + x] =
                    static_cast<std::uint8_t>(ink + below(46));
            }
        }
    }
}

}  // namespace

bool has_digits(const fs::path& directory, const char* prefix) {
    std::error_code ignored;
    return fs::exists(images_file(directory, prefix), ignored);
}

Digits read_digits(const fs::path& directory, const char* prefix) {
    Digits digits;
    IdxReader images(images_file(directory, prefix));
    images.expect("magic number", kImageMagic, "unsigned bytes in three dimensions");
    const std::size_t count = images.count();
    images.expect("rows", kImageSide, "the network takes images of 28 x 28");
    images.expect("columns", kImageSide, "the network takes images of 28 x 28");
    digits.pixels = images.rest(count * kPixels);

    IdxReader labels(labels_file(directory, prefix));
    labels.expect("magic number", kLabelMagic, "unsigned bytes in one dimension");
    if (const std::size_t label_count = labels.count(); label_count != count) {
        labels.fail("its field 'count' is " + std::to_string(label_count) + ", but there are " +
                    std::to_string(count) + " images");
    }
    digits.labels = labels.rest(count);
    const auto wrong =
        std::ranges::find_if(digits.labels, [](std::uint8_t label) { return label >= kClasses; });
    if (wrong != digits.labels.end()) {
        labels.fail("has label " + std::to_string(*wrong) + " for image " +
                    std::to_string(wrong - digits.labels.begin()) + ", not 0 to 9");
    }
    return digits;
}

void write_digits(const fs::path& directory, const char* prefix, const Digits& digits) {
    std::error_code ignored;  // If this fails, the write below reports it.
    fs::create_directories(directory, ignored);
    const auto count = static_cast<std::uint32_t>(digits.count());
    write_file(images_file(directory, prefix), {kImageMagic, count, kImageSide, kImageSide},
               digits.pixels);
    write_file(labels_file(directory, prefix), {kLabelMagic, count}, digits.labels);
}

Digits draw_digits(std::size_t count, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Digits digits;
    digits.pixels.resize(count * kPixels);
    for (std::size_t i = 0; i < count; ++i) {
        digits.labels.push_back(static_cast<std::uint8_t>((random() >> 33U) % kClasses));
        draw(digits.labels.back(), random, digits.pixels.data() + i * kPixels);
    }
    return digits;
}

}  // namespace mnist
