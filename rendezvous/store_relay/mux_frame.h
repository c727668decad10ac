// SPDX-License-Identifier: Apache-2.0
//
// How two agents carry the store connections of many workers over one connection. Each worker's
// connection is a channel. A frame is the number of its channel as u32, its kind and length as u32
// (the kind in the highest byte), and that many bytes; integers are little-endian. Only data frames
// have bytes.
//
// The agent of the workers opens channels, with numbers that increase. Either side closes a
// channel, and ignores later frames for it: the other side may not know yet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace regroup::store {

using Channel = std::uint32_t;

enum class MuxKind : std::uint8_t { open = 1, data = 2, close = 3 };

/// The most bytes of one frame.
inline constexpr std::size_t kMuxBytesMax = std::size_t{64} << 10U;

/// Appends a frame without bytes.
void append_mux(std::string& to, Channel channel, MuxKind kind);
/// Appends data frames for all of `bytes`; none for no bytes.
void append_mux_data(std::string& to, Channel channel, std::string_view bytes);

/// A frame, or some bytes of a data frame.
struct MuxPiece {
    Channel channel = 0;
    MuxKind kind = MuxKind::data;
    std::string_view bytes;

    friend bool operator==(const MuxPiece&, const MuxPiece&) = default;
};

/// Turns the bytes of one connection into pieces, in any segmentation. It keeps no bytes of frames,
/// so that an announced length costs nothing.
class MuxReader {
   public:
    /// Takes bytes off the front of `bytes`, and returns a piece of them, or nothing when all have
    /// been taken. Errors: invalid_argument, with the predicate of a sentence about the peer; the
    /// reader must not be used after it.
    Result<std::optional<MuxPiece>> next(std::string_view& bytes);

   private:
    static constexpr std::size_t kHeadBytes = 8;

    std::array<char, kHeadBytes> head_{};
    std::size_t head_bytes_ = 0;
    Channel channel_ = 0;
    std::size_t bytes_left_ = 0;  ///< Of the current data frame.
};

}  // namespace regroup::store
