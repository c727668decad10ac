// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace regroup::protocol {

/// A frame is its payload's length in 4 bytes, most significant first, then the payload: one JSON
/// object. A longer payload than this is refused as soon as its length is read.
inline constexpr std::size_t kFrameBytesMax = std::size_t{512} << 10;
inline constexpr std::size_t kFrameHeaderBytes = 4;

/// `payload` as a frame. Requires payload.size() <= kFrameBytesMax.
[[nodiscard]] std::string make_frame(std::string_view payload);

/// Cuts a byte stream into payloads, in any segmentation. If `next` is called after each `feed`
/// until it returns nullopt, the reader holds less than one frame beyond the last bytes fed.
class FrameReader {
   public:
    /// Appends received bytes.
    void feed(std::string_view bytes);

    /// The next complete payload; nullopt if there is none yet; a Failure if the stream is not the
    /// control protocol. After a Failure the stream is unusable: every later call returns the same
    /// Failure, and further bytes are discarded. Errors: invalid_argument.
    [[nodiscard]] Result<std::optional<std::string>> next();

    /// The memory that waits for the rest of a frame.
    [[nodiscard]] std::size_t held_bytes() const noexcept { return buffer_.capacity(); }

   private:
    std::string buffer_;
    std::size_t consumed_ = 0;
    std::optional<Failure> lost_;
};

}  // namespace regroup::protocol
