// SPDX-License-Identifier: Apache-2.0
//
// Messages of workers and agents about snapshots, and images. The first byte says what the rest is:
// a packet of the channel, an announcement, an image, or an image whose hashes are made right
// before it is read.
#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/snapshot/channel.h"
#include "rendezvous/snapshot/holdings.h"
#include "rendezvous/snapshot/image.h"
#include "rendezvous/snapshot/pieces.h"
#include "tests/fuzz/fuzz.h"

namespace regroup::fuzz_snapshot {
namespace {

using namespace regroup::snapshot;

enum class Kind : std::uint8_t { packet, announcement, image, repaired_image };
constexpr std::uint8_t kKinds = 4;

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

template <class Message>
void check_packet(std::string_view packet, Result<Message> (*decode)(std::string_view)) {
    const Result<Message> message = decode(packet);
    if (!message) {
        fuzz::require(!message.error().detail.empty(), "a refusal has a reason");
        return;
    }
    const std::string sent = encode(*message);
    fuzz::require(sent.size() <= kPacketBytesMax, "an accepted message fits a packet");
    const Result<Message> cut = decode(sent);  // Long texts were cut.
    fuzz::require(cut.has_value(), "an accepted message is accepted again");
    const Result<Message> again = decode(encode(*cut));
    fuzz::require(again && *again == *cut, "a round trip changes nothing");
}

void check_announcement(std::string_view text) {
    const Result<Announcement> said = decode_announcement(text);
    if (!said) {
        return;
    }
    const Result<Announcement> again = decode_announcement(encode(*said));
    fuzz::require(again && *again == *said, "a round trip changes nothing");
    Announcement other = *said;
    ++other.node;
    std::optional<Version> last;
    for (const Candidate& candidate : candidates({*said, other})) {
        fuzz::require(!last || candidate.version <= *last, "the latest candidate is the first");
        last = candidate.version;
        // Of many parts, the first and the last ones.
        constexpr std::uint32_t kLooked = 64;
        for (std::uint32_t i = 0; i < std::min(candidate.parts, 2 * kLooked); ++i) {
            const std::uint32_t part = i < kLooked ? i : candidate.parts - 1 - (i - kLooked);
            const std::vector<Source> order = candidate.order(part, other.node);
            fuzz::require(!order.empty(), "each part has a source");
            fuzz::require(std::ranges::is_permutation(order, candidate.sources(part)),
                          "each source is tried once");
        }
    }
}

/// Puts a hash of 16 digits behind `"name":"`.
void put_hash(std::string& image, std::size_t end, const char* name, std::size_t offset,
              std::uint64_t hash) {
    constexpr std::size_t kDigits = 16;
    const std::string before = std::string("\"") + name + "\":\"";
    const std::size_t at = image.find(before);
    if (at == image.npos || at + before.size() + offset + kDigits > end) {
        return;
    }
    for (std::size_t i = 0; i < kDigits; ++i) {
        image[at + before.size() + offset + i] =
            "0123456789abcdef"[hash >> (4 * (kDigits - 1 - i)) & 15U];
    }
}

void seal_header(std::string& image, std::size_t end) {
    put_hash(image, end, "regroup.header", 0, 0);
    put_hash(image, end, "regroup.header", 0,
             hash_of_piece(bytes_of(std::string_view(image).substr(0, end))));
}

/// The image with the length of its header within it, and the hashes that it should have.
std::string repaired(std::string image) {
    const Result<std::uint64_t> said = header_bytes(bytes_of(image));
    if (image.size() < sizeof(std::uint64_t) || !said) {
        return image;
    }
    const std::size_t end = std::min<std::size_t>(*said, image.size());
    const std::uint64_t length = end - sizeof length;
    std::memcpy(image.data(), &length, sizeof length);
    seal_header(image, end);
    const Result<ImageHeader> header = read_header(bytes_of(image));
    if (!header) {
        return image;
    }
    for (std::size_t i = 0; i < header->tensors.size(); ++i) {
        const TensorEntry& tensor = header->tensors[i];
        if (tensor.begin + tensor.bytes <= image.size()) {
            put_hash(image, end, "regroup.hashes", 16 * i,
                     hash_of_tensor(bytes_of(image).subspan(tensor.begin, tensor.bytes)));
        }
    }
    seal_header(image, end);
    return image;
}

void check_header(const ImageHeader& header) {
    fuzz::require(is_state_name(header.id.name) && header.id.part < header.id.parts &&
                      header.id.parts <= kPartsMax,
                  "a header says which part it is of");
    std::uint64_t at = header.data_begin;
    for (const TensorEntry& tensor : header.tensors) {
        fuzz::require(tensor.begin == at, "tensors lie one after the other");
        at += tensor.bytes;
        fuzz::require(tensor.offset.size() == tensor.shape.size() &&
                          tensor.global_shape.size() == tensor.shape.size(),
                      "a box has as many dimensions as its tensor");
        std::uint64_t items = 1;
        for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
            fuzz::require(tensor.shape[i] <= tensor.global_shape[i] &&
                              tensor.offset[i] <= tensor.global_shape[i] - tensor.shape[i],
                          "a box lies within its tensor");
            items *= tensor.shape[i];
        }
        fuzz::require(items * item_bytes(tensor.dtype) == tensor.bytes,
                      "a tensor has the bytes of its shape");
        fuzz::require(header.find(tensor.name) != nullptr, "a tensor is found by its name");
    }
    fuzz::require(at == header.bytes, "the tensors fill the image");
}

void check_image(const std::string& image) {
    const Result<ImageHeader> header = read_header(bytes_of(image));
    const Result<ImageHeader> verified = verify_image(bytes_of(image));
    if (!header) {
        fuzz::require(!verified, "an image without a header is refused");
        fuzz::require(!header.error().detail.empty(), "a refusal has a reason");
        return;
    }
    check_header(*header);
    fuzz::require(!verified || header->bytes == image.size(), "an image has all of its bytes");
}

/// An image of two tensors, of which one is a piece.
std::string sample_image() {
    Result<ImageLayout> layout =
        ImageLayout::of({"state", 1, 3}, {{.name = "weights",
                                           .dtype = "F32",
                                           .shape = {2, 3},
                                           .offset = {2, 0},
                                           .global_shape = {6, 3}},
                                          {.name = "step", .dtype = "I64", .shape = {}}});
    fuzz::require(layout.has_value(), "the sample has a layout");
    const std::vector<std::uint64_t> hashes(layout->tensors().size(), 0);
    std::string image = layout->header({17, 2, 40}, hashes);
    image.resize(layout->bytes(), 'x');
    image = repaired(image);
    fuzz::require(verify_image(bytes_of(image)).has_value(), "the right hashes are accepted");
    return image;
}

std::vector<std::string> seeds() {
    std::vector<std::string> seeds;
    const auto add = [&](Kind kind, const std::string& text) {
        seeds.push_back(static_cast<char>(kind) + text);
    };
    for (int kind = 0; kind <= static_cast<int>(Ask::Kind::copies_to); ++kind) {
        add(Kind::packet, encode(Ask{.kind = static_cast<Ask::Kind>(kind),
                                     .id = {"state", 1, 3},
                                     .version = {17, 2, 40},
                                     .place = Holding::Place::copy,
                                     .endpoint = "10.0.0.2:4711",
                                     .bytes = 4096,
                                     .write = true}));
    }
    add(Kind::packet, encode(Answer{"the agent has no memory", 4096, 1 << 20, true}));
    Announcement announcement{3, "node-c", "10.0.0.2:4711", {}};
    for (std::uint32_t part = 0; part < 3; ++part) {
        announcement.holdings.push_back(
            {static_cast<Holding::Place>(part), part, 3, {17, 2, 40}, 3 - part});
    }
    add(Kind::announcement, encode(announcement));
    add(Kind::image, sample_image());
    add(Kind::repaired_image, sample_image());
    return seeds;
}

void test(const std::uint8_t* bytes, std::size_t count) {
    fuzz::Input input(bytes, count);
    const auto kind = static_cast<Kind>(input.byte() % kKinds);
    const std::string rest(input.bytes(count));
    switch (kind) {
        case Kind::packet:
            check_packet(rest, decode_ask);
            check_packet(rest, decode_answer);
            return;
        case Kind::announcement:
            check_announcement(rest);
            return;
        case Kind::image:
            check_image(rest);
            return;
        case Kind::repaired_image:
            check_image(repaired(rest));
            return;
    }
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_snapshot
