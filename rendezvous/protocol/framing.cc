// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/protocol/framing.h"

#include <cstdint>

namespace regroup::protocol {

std::string make_frame(std::string_view payload) {
    ENSURE(payload.size() <= kFrameBytesMax);
    const auto length = static_cast<std::uint32_t>(payload.size());
    std::string frame;
    frame.reserve(kFrameHeaderBytes + payload.size());
    for (const unsigned shift : {24U, 16U, 8U, 0U}) {
        frame.push_back(static_cast<char>(static_cast<unsigned char>(length >> shift)));
    }
    frame.append(payload);
    return frame;
}

void FrameReader::feed(std::string_view bytes) {
    if (lost_) {
        return;
    }
    buffer_.erase(0, consumed_);
    consumed_ = 0;
    buffer_.append(bytes);
}

Result<std::optional<std::string>> FrameReader::next() {
    if (lost_) {
        return *lost_;
    }
    const std::string_view rest = std::string_view(buffer_).substr(consumed_);
    if (rest.size() < kFrameHeaderBytes) {
        return std::optional<std::string>();
    }
    std::size_t length = 0;
    for (std::size_t i = 0; i < kFrameHeaderBytes; ++i) {
        length = length << 8U | static_cast<unsigned char>(rest[i]);
    }
    if (length > kFrameBytesMax) {
        buffer_.clear();
        return lost_.emplace(Errc::invalid_argument,
                             "a frame of " + std::to_string(length) +
                                 " bytes exceeds the limit of " + std::to_string(kFrameBytesMax) +
                                 "; the peer does not speak regroup's control protocol");
    }
    if (rest.size() < kFrameHeaderBytes + length) {
        return std::optional<std::string>();
    }
    std::string payload(rest.substr(kFrameHeaderBytes, length));
    consumed_ += kFrameHeaderBytes + length;
    if (consumed_ == buffer_.size()) {
        buffer_ = std::string();  // A connection that waits keeps no memory of its last message.
        consumed_ = 0;
    }
    return std::optional<std::string>(std::move(payload));
}

}  // namespace regroup::protocol
