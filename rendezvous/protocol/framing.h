// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace regroup::protocol {

/// A frame is its payload's length in 4 bytes, most significant first, then the payload: one JSON
/// object. Longer payloads than this are refused before a byte of them is kept.
inline constexpr std::size_t kFrameBytesMax = std::size_t{256} << 10;
inline constexpr std::size_t kFrameHeaderBytes = 4;

/// `payload` as a frame. Requires payload.size() <= kFrameBytesMax.
[[nodiscard]] std::string make_frame(std::string_view payload);

/// Cuts a byte stream into payloads, however it was segmented on the way. Holds at most one frame
/// beyond what was fed in one call.
class FrameReader {
   public:
    /// Appends what was received.
    void feed(std::string_view bytes);

    /// The next whole payload, or nothing yet, or why the stream is not ours; after a Failure the
    /// stream is lost and the connection must be closed. Errors: invalid_argument.
    [[nodiscard]] Result<std::optional<std::string>> next();

   private:
    std::string buffer_;
    std::size_t consumed_ = 0;
};

}  // namespace regroup::protocol
