// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_relay/mux_frame.h"

#include <algorithm>

#include "rendezvous/store/store_wire.h"

namespace regroup::store {
namespace {

constexpr unsigned kKindShift = 24;
constexpr std::uint32_t kLengthMask = (std::uint32_t{1} << kKindShift) - 1;

void append_head(std::string& to, Channel channel, MuxKind kind, std::size_t length) {
    append_u32(to, channel);
    append_u32(to, std::uint32_t{static_cast<std::uint8_t>(kind)} << kKindShift |
                       static_cast<std::uint32_t>(length));
}

}  // namespace

void append_mux(std::string& to, Channel channel, MuxKind kind) {
    append_head(to, channel, kind, 0);
}

void append_mux_data(std::string& to, Channel channel, std::string_view bytes) {
    while (!bytes.empty()) {
        const std::string_view part = bytes.substr(0, kMuxBytesMax);
        append_head(to, channel, MuxKind::data, part.size());
        to.append(part);
        bytes.remove_prefix(part.size());
    }
}

Result<std::optional<MuxPiece>> MuxReader::next(std::string_view& bytes) {
    if (bytes_left_ > 0) {
        if (bytes.empty()) {
            return std::optional<MuxPiece>();
        }
        const std::string_view part = bytes.substr(0, bytes_left_);
        bytes.remove_prefix(part.size());
        bytes_left_ -= part.size();
        return std::optional(MuxPiece{channel_, MuxKind::data, part});
    }
    const std::size_t count = std::min(kHeadBytes - head_bytes_, bytes.size());
    std::copy_n(bytes.begin(), count, head_.begin() + static_cast<std::ptrdiff_t>(head_bytes_));
    bytes.remove_prefix(count);
    head_bytes_ += count;
    if (head_bytes_ < kHeadBytes) {
        return std::optional<MuxPiece>();
    }
    head_bytes_ = 0;
    channel_ = read_u32(head_.data());
    const std::uint32_t word = read_u32(head_.data() + 4);
    const std::size_t length = word & kLengthMask;
    const std::uint32_t kind = word >> kKindShift;
    if (kind < static_cast<std::uint32_t>(MuxKind::open) ||
        kind > static_cast<std::uint32_t>(MuxKind::close)) {
        return Failure(Errc::invalid_argument,
                       "sent a frame of the unknown kind " + std::to_string(kind));
    }
    if (kind != static_cast<std::uint32_t>(MuxKind::data)) {
        if (length != 0) {
            return Failure(Errc::invalid_argument, "sent a frame of kind " + std::to_string(kind) +
                                                       " with bytes, which has none");
        }
        return std::optional(MuxPiece{channel_, static_cast<MuxKind>(kind), {}});
    }
    if (length == 0 || length > kMuxBytesMax) {
        return Failure(Errc::invalid_argument, "sent a data frame of " + std::to_string(length) +
                                                   " bytes; the limits are" + " 1 and " +
                                                   std::to_string(kMuxBytesMax));
    }
    bytes_left_ = length;
    return next(bytes);
}

}  // namespace regroup::store
