// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/snapshot/image.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/base/ensure.h"
#include "rendezvous/base/utf8.h"
#include "rendezvous/json/json_fields.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/snapshot/pieces.h"

namespace regroup::snapshot {

namespace {

using Json = nlohmann::json;
using Shape = std::vector<std::uint64_t>;

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kDataAlignment = 64;
constexpr std::size_t kTensorNameBytesMax = 1024;
constexpr std::size_t kDimensionsMax = 64;
constexpr std::size_t kHashDigits = 16;
constexpr std::size_t kVersionDigits = 20;
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 56U;

constexpr const char* kMetadata = "__metadata__";
constexpr const char* kVersion = "regroup.version";
constexpr const char* kPart = "regroup.part";
constexpr const char* kShapes = "regroup.shapes";
constexpr const char* kHashes = "regroup.hashes";
constexpr const char* kOwnHash = "regroup.header";

struct Type {
    std::string_view name;
    std::size_t bytes;
};
constexpr std::array kTypes = {
    Type{"BOOL", 1},    Type{"U8", 1},  Type{"I8", 1},  Type{"F8_E5M2", 1},
    Type{"F8_E4M3", 1}, Type{"I16", 2}, Type{"U16", 2}, Type{"F16", 2},
    Type{"BF16", 2},    Type{"I32", 4}, Type{"U32", 4}, Type{"F32", 4},
    Type{"F64", 8},     Type{"I64", 8}, Type{"U64", 8}, Type{"C64", 8},
};

std::string json_string(const std::string& text) {
    return json_text(Json(text));
}

std::string list_of(const Shape& values) {
    std::string text = "[";
    for (const std::uint64_t value : values) {
        text += (text.size() > 1 ? "," : "") + std::to_string(value);
    }
    return text + "]";
}

std::string hexadecimal(std::uint64_t value) {
    std::array<char, kHashDigits + 1> text{};
    std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
    return text.data();
}

std::string digits_of(const Version& version) {
    std::array<char, 3 * (kVersionDigits + 1) + 1> text{};
    std::snprintf(text.data(), text.size(), "%020llu %020llu %020llu",
                  static_cast<unsigned long long>(version.history),
                  static_cast<unsigned long long>(version.round),
                  static_cast<unsigned long long>(version.step));
    return text.data();
}

/// Numbers with a blank between them.
template <std::size_t kCount>
std::optional<std::array<std::uint64_t, kCount>> numbers_in(std::string_view text) {
    std::array<std::uint64_t, kCount> numbers{};
    const char* at = text.data();
    const char* const end = at + text.size();
    for (std::size_t i = 0; i < kCount; ++i) {
        if (i > 0) {
            if (at == end || *at != ' ') {
                return std::nullopt;
            }
            ++at;
        }
        const auto [next, error] = std::from_chars(at, end, numbers[i]);
        if (error != std::errc{}) {
            return std::nullopt;
        }
        at = next;
    }
    return at == end ? std::optional(numbers) : std::nullopt;
}

/// The number of bytes of a tensor; nullopt if there can be no such tensor.
std::optional<std::uint64_t> bytes_of(const Shape& shape, std::size_t item) {
    std::uint64_t bytes = item;
    for (const std::uint64_t size : shape) {
        if (size != 0 && bytes > kBytesMax / size) {
            return std::nullopt;
        }
        bytes *= size;
    }
    return bytes;
}

bool is_within(const Shape& shape, const Shape& offset, const Shape& whole) {
    if (offset.size() != shape.size() || whole.size() != shape.size()) {
        return false;
    }
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (offset[i] > whole[i] || shape[i] > whole[i] - offset[i]) {
            return false;
        }
    }
    return true;
}

/// The hash of a header in which the place of that hash has zeros.
std::uint64_t own_hash(std::string_view header) {
    return hash_of_piece(std::as_bytes(std::span(header)));
}

bool is_utf8(std::string_view text) noexcept {
    while (!text.empty()) {
        const std::size_t bytes = first_character(text).bytes;
        if (bytes == 0) {
            return false;
        }
        text.remove_prefix(bytes);
    }
    return true;
}

std::string name_trouble(const std::string& name) {
    if (name.empty() || name.size() > kTensorNameBytesMax || !is_utf8(name) || name == kMetadata) {
        return "tensor \"" + name + "\": a name has 1 to " + std::to_string(kTensorNameBytesMax) +
               " bytes of UTF-8, and is not " + kMetadata;
    }
    return "";
}

Failure damaged(const std::string& what) {
    return {Errc::invalid_argument, what};
}

Failure bad_header(const std::string& what) {
    return damaged("has a damaged header: " + what);
}

std::optional<Shape> shape_in(const Json& list) {
    if (!list.is_array() || list.size() > kDimensionsMax) {
        return std::nullopt;
    }
    Shape shape;
    for (const Json& size : list) {
        if (!size.is_number_unsigned()) {
            return std::nullopt;
        }
        shape.push_back(size.get<std::uint64_t>());
    }
    return shape;
}

std::optional<std::uint64_t> hash_in(std::string_view digits) {
    std::uint64_t hash = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), hash, 16);
    // Only as hexadecimal() writes it: any other byte is damage.
    const bool good =
        error == std::errc{} && end == digits.data() + digits.size() && hexadecimal(hash) == digits;
    return good ? std::optional(hash) : std::nullopt;
}

Result<void> read_place(const Json& metadata, ImageHeader& header) {
    const auto version = numbers_in<3>(text_in(metadata, kVersion));
    const std::string part = text_in(metadata, kPart);
    const std::size_t blank = std::min(part.find(' '), part.size());
    const auto numbers = blank == part.size()
                             ? std::nullopt
                             : numbers_in<2>(std::string_view(part).substr(blank + 1));
    header.id.name = part.substr(0, blank);
    if (!version || !numbers || !is_state_name(header.id.name) || (*numbers)[1] == 0 ||
        (*numbers)[1] > kPartsMax || (*numbers)[0] >= (*numbers)[1]) {
        return bad_header("it does not say which part of which version it is");
    }
    header.version = {(*version)[0], (*version)[1], (*version)[2]};
    header.id.part = static_cast<std::uint32_t>((*numbers)[0]);
    header.id.parts = static_cast<std::uint32_t>((*numbers)[1]);
    return {};
}

Result<TensorEntry> read_tensor(const std::string& name, const Json& said) {
    TensorEntry entry{.name = name, .dtype = text_in(said, "dtype")};
    const std::optional<Shape> shape = shape_in(field_in(said, "shape"));
    const std::optional<Shape> place = shape_in(field_in(said, "data_offsets"));
    const std::size_t item = item_bytes(entry.dtype);
    if (!shape || item == 0 || !place || place->size() != 2 || (*place)[0] > (*place)[1]) {
        return bad_header("tensor " + name + " has no valid type, shape or place");
    }
    entry.shape = *shape;
    entry.begin = (*place)[0];
    entry.bytes = (*place)[1] - (*place)[0];
    if (bytes_of(entry.shape, item) != entry.bytes) {
        return bad_header("tensor " + name + " has another length than its shape");
    }
    entry.offset.assign(entry.shape.size(), 0);
    entry.global_shape = entry.shape;
    return entry;
}

/// Sorts the tensors by their places, which fill the image, and gives them their hashes.
Result<void> place_tensors(std::vector<TensorEntry>& tensors, std::string_view hashes,
                           ImageHeader& header) {
    std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
        return std::tie(a.begin, a.bytes, a.name) < std::tie(b.begin, b.bytes, b.name);
    });
    if (hashes.size() != tensors.size() * kHashDigits) {
        return bad_header("it does not have one hash for each tensor");
    }
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const auto hash = hash_in(hashes.substr(i * kHashDigits, kHashDigits));
        if (tensors[i].begin != end || !hash || tensors[i].bytes > kBytesMax - end) {
            return bad_header("there is a gap before tensor " + tensors[i].name);
        }
        end += tensors[i].bytes;
        tensors[i].begin += header.data_begin;
        tensors[i].hash = *hash;
    }
    header.bytes = header.data_begin + end;
    header.tensors = std::move(tensors);
    return {};
}

Result<void> read_boxes(const Json& metadata, std::vector<TensorEntry>& tensors) {
    const std::string shapes_text = text_in(metadata, kShapes);
    const std::string offsets_text = text_in(metadata, "DCP_SHARDING_INFO");
    const Json shapes = parse_json(shapes_text);
    const Json offsets = parse_json(offsets_text);
    for (TensorEntry& entry : tensors) {
        if (const Json& said = field_in(field_in(offsets, entry.name), "saved_offsets");
            !said.is_null()) {
            entry.offset = shape_in(said).value_or(Shape());
        }
        if (const Json& said = field_in(shapes, entry.name); !said.is_null()) {
            entry.global_shape = shape_in(said).value_or(Shape());
        }
        if (!is_within(entry.shape, entry.offset, entry.global_shape)) {
            return bad_header("tensor " + entry.name +
                              " is not within the tensor of which it is "
                              "a piece");
        }
    }
    return {};
}

}  // namespace

std::size_t item_bytes(std::string_view dtype) noexcept {
    const auto* const found = std::find_if(kTypes.begin(), kTypes.end(),
                                           [&](const Type& type) { return type.name == dtype; });
    return found == kTypes.end() ? 0 : found->bytes;
}

Result<ImageLayout> ImageLayout::of(PartId id, std::vector<TensorEntry> tensors) {
    ENSURE(is_state_name(id.name) && id.part < id.parts && id.parts <= kPartsMax);
    std::set<std::string_view> names;
    std::uint64_t at = 0;
    std::string offsets = "{";
    std::string shapes = "{";
    std::string entries;
    for (TensorEntry& entry : tensors) {
        if (const std::string trouble = name_trouble(entry.name); !trouble.empty()) {
            return invalid_argument(trouble);
        }
        if (!names.insert(entry.name).second) {
            return invalid_argument("tensor \"" + entry.name + "\" is there twice");
        }
        const std::size_t item = item_bytes(entry.dtype);
        if (item == 0) {
            return invalid_argument("tensor \"" + entry.name + "\": there is no type " +
                                    entry.dtype);
        }
        if (entry.offset.empty()) {
            entry.offset.assign(entry.shape.size(), 0);
        }
        if (entry.global_shape.empty()) {
            entry.global_shape = entry.shape;
        }
        const auto bytes = bytes_of(entry.shape, item);
        if (!bytes || *bytes > kBytesMax - at || entry.shape.size() > kDimensionsMax ||
            !is_within(entry.shape, entry.offset, entry.global_shape)) {
            return invalid_argument("tensor \"" + entry.name + "\": " + list_of(entry.shape) +
                                    " from " + list_of(entry.offset) + " is not within " +
                                    list_of(entry.global_shape));
        }
        const std::string name = json_string(entry.name);
        offsets += (offsets.size() > 1 ? "," : "") + name +
                   ":{\"saved_offsets\":" + list_of(entry.offset) + "}";
        if (entry.global_shape != entry.shape) {
            shapes += (shapes.size() > 1 ? "," : "") + name + ":" + list_of(entry.global_shape);
        }
        entries += "," + name + ":{\"dtype\":\"" + entry.dtype +
                   "\",\"shape\":" + list_of(entry.shape) + ",\"data_offsets\":[" +
                   std::to_string(at) + "," + std::to_string(at + *bytes) + "]}";
        entry.begin = at;
        entry.bytes = *bytes;
        at += *bytes;
    }
    ImageLayout layout;
    std::string& text = layout.header_;
    text = std::string(kLengthBytes, '\0') + "{\"" + kMetadata +
           "\":{\"DCP_SHARDING_INFO\":" + json_string(offsets + "}") +
           ",\"DCP_VERSION\":\"1.0\",\"format\":\"pt\",\"" + kShapes +
           "\":" + json_string(shapes + "}") + ",\"" + kPart + "\":" +
           json_string(id.name + " " + std::to_string(id.part) + " " + std::to_string(id.parts)) +
           ",\"" + kVersion + "\":\"";
    layout.version_at_ = text.size();
    text += digits_of({}) + "\",\"" + kHashes + "\":\"";
    layout.hashes_at_ = text.size();
    text += std::string(tensors.size() * kHashDigits, '0') + "\",\"" + kOwnHash + "\":\"";
    layout.own_hash_at_ = text.size();
    text += std::string(kHashDigits, '0') + "\"}" + entries + "}";
    text.resize((text.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment, ' ');
    if (text.size() > kHeaderBytesMax) {
        return invalid_argument("a part of " + std::to_string(tensors.size()) +
                                " tensors needs a header of " + std::to_string(text.size()) +
                                " bytes; at most " + std::to_string(kHeaderBytesMax) +
                                " are allowed");
    }
    const std::uint64_t length = text.size() - kLengthBytes;
    std::memcpy(text.data(), &length, kLengthBytes);
    for (TensorEntry& entry : tensors) {
        entry.begin += text.size();
    }
    layout.bytes_ = text.size() + at;
    layout.id_ = std::move(id);
    layout.tensors_ = std::move(tensors);
    return layout;
}

std::string ImageLayout::header(const Version& version,
                                std::span<const std::uint64_t> hashes) const {
    ENSURE(hashes.size() == tensors_.size());
    std::string text = header_;
    const std::string digits = digits_of(version);
    text.replace(version_at_, digits.size(), digits);
    for (std::size_t i = 0; i < hashes.size(); ++i) {
        text.replace(hashes_at_ + i * kHashDigits, kHashDigits, hexadecimal(hashes[i]));
    }
    text.replace(own_hash_at_, kHashDigits, hexadecimal(own_hash(text)));
    return text;
}

const TensorEntry* ImageHeader::find(std::string_view name) const noexcept {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const TensorEntry& entry) { return entry.name == name; });
    return found == tensors.end() ? nullptr : &*found;
}

Result<std::uint64_t> header_bytes(std::span<const std::byte> beginning) {
    std::uint64_t length = 0;
    if (beginning.size() < kLengthBytes) {
        return damaged("is cut off");
    }
    std::memcpy(&length, beginning.data(), kLengthBytes);
    if (length > kHeaderBytesMax) {
        return damaged("is no safetensors file");
    }
    return kLengthBytes + length;
}

Result<ImageHeader> read_header(std::span<const std::byte> beginning) {
    const Result<std::uint64_t> length = header_bytes(beginning);
    if (!length) {
        return length.error();
    }
    if (*length > beginning.size()) {
        return damaged("is cut off");
    }
    std::string text(reinterpret_cast<const char*>(beginning.data()), *length);
    const std::string own_place = std::string("\"") + kOwnHash + "\":\"";
    const std::size_t own_at = text.find(own_place);
    if (own_at == text.npos || own_at + own_place.size() + kHashDigits > text.size()) {
        return damaged("is no part of a snapshot: its header has no hash");
    }
    const auto said =
        hash_in(std::string_view(text).substr(own_at + own_place.size(), kHashDigits));
    text.replace(own_at + own_place.size(), kHashDigits, kHashDigits, '0');
    if (!said || *said != own_hash(text)) {
        return damaged("has a damaged header: its hash is another one");
    }
    const Json object = parse_json(std::string_view(text).substr(kLengthBytes));
    const Json& metadata = field_in(object, kMetadata);
    ImageHeader header;
    header.data_begin = *length;
    if (Result<void> placed = read_place(metadata, header); !placed) {
        return placed.error();
    }
    std::vector<TensorEntry> tensors;
    for (const auto& [name, tensor] : object.items()) {
        if (name == kMetadata) {
            continue;
        }
        Result<TensorEntry> entry = read_tensor(name, tensor);
        if (!entry) {
            return entry.error();
        }
        tensors.push_back(std::move(*entry));
    }
    if (Result<void> boxed = read_boxes(metadata, tensors); !boxed) {
        return boxed.error();
    }
    if (Result<void> placed = place_tensors(tensors, text_in(metadata, kHashes), header); !placed) {
        return placed.error();
    }
    return header;
}

Result<ImageHeader> verify_image(std::span<const std::byte> image, unsigned threads) {
    Result<ImageHeader> header = read_header(image);
    if (!header) {
        return header;
    }
    if (header->bytes != image.size()) {
        return damaged("has " + std::to_string(image.size()) + " bytes, and its header says " +
                       std::to_string(header->bytes));
    }
    struct Piece {
        std::span<const std::byte> bytes;
        std::uint64_t hash = 0;
    };
    std::vector<Piece> pieces;
    for (const TensorEntry& entry : header->tensors) {
        for (std::uint64_t at = 0; at < entry.bytes; at += kPieceBytes) {
            pieces.push_back({image.subspan(
                entry.begin + at, std::min<std::uint64_t>(kPieceBytes, entry.bytes - at))});
        }
    }
    std::atomic<std::size_t> next{0};
    const auto work = [&pieces, &next] {
        for (std::size_t i = next++; i < pieces.size(); i = next++) {
            pieces[i].hash = hash_of_piece(pieces[i].bytes);
        }
    };
    std::vector<std::thread> helpers;
    const std::size_t useful = std::min<std::size_t>(threads, pieces.size());
    for (std::size_t i = 1; i < useful; ++i) {
        helpers.emplace_back(work);
    }
    work();
    for (std::thread& helper : helpers) {
        helper.join();
    }
    std::size_t piece = 0;
    std::vector<std::uint64_t> hashes;
    for (const TensorEntry& entry : header->tensors) {
        hashes.clear();
        for (std::size_t i = 0; i < pieces_count(entry.bytes); ++i) {
            hashes.push_back(pieces[piece++].hash);
        }
        if (hash_of_pieces(hashes) != entry.hash) {
            return damaged("is damaged: tensor " + entry.name + " has another hash");
        }
    }
    return header;
}

}  // namespace regroup::snapshot
