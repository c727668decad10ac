// SPDX-License-Identifier: Apache-2.0
//
// One part of a snapshot, in memory as in a file: a safetensors file with a fixed layout.
//
//     8 bytes      the length of the header
//     the header   JSON, with blanks at its end
//     the data     the tensors, one after the other without gaps
//
// The header's "__metadata__" has what PyTorch's readers of sharded files need (DCP_SHARDING_INFO:
// the offset of each tensor in the tensor of which it is a piece), and what belongs to regroup:
//
//     regroup.version  history, round and step, each with 20 digits
//     regroup.part     name, part and parts
//     regroup.shapes   for tensors that are pieces: the shape of the whole tensor
//     regroup.hashes   for each tensor, in the order of the data, its hash in 16 hexadecimal digits
//     regroup.header   the hash of the header, with zeros in this place
//
// The hashes stand in places of fixed length, so that they can be written after the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/snapshot/version.h"

namespace regroup::snapshot {

/// A tensor, or the piece of one that this part has. A piece is a box: `shape[i]` elements from
/// `offset[i]` on in dimension i of a tensor of `global_shape`.
struct TensorEntry {
    std::string name;
    std::string dtype;  ///< As safetensors names it: "F32", "BF16".
    std::vector<std::uint64_t> shape{};
    std::vector<std::uint64_t> offset{};        ///< As many as `shape`.
    std::vector<std::uint64_t> global_shape{};  ///< As many as `shape`.
    std::uint64_t begin = 0;                    ///< Of its data within the image.
    std::uint64_t bytes = 0;
    std::uint64_t hash = 0;

    friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

/// Bytes of an element; 0: no such type.
[[nodiscard]] std::size_t item_bytes(std::string_view dtype) noexcept;

/// The longest header; readers of safetensors refuse a longer one.
inline constexpr std::size_t kHeaderBytesMax = 100'000'000;

/// Where everything lies in an image, and the text of its header.
class ImageLayout {
   public:
    /// Gives each entry its place; `begin`, `bytes` and `hash` are ignored. Errors:
    /// invalid_argument, naming the tensor, for a name that is taken, an unknown type, a box that
    /// is not within its tensor, or too many tensors for a header.
    static Result<ImageLayout> of(PartId id, std::vector<TensorEntry> tensors);

    [[nodiscard]] const PartId& id() const noexcept { return id_; }
    /// In the order of the data.
    [[nodiscard]] const std::vector<TensorEntry>& tensors() const noexcept { return tensors_; }
    /// Of the whole image.
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
    [[nodiscard]] std::uint64_t data_begin() const noexcept { return header_.size(); }

    /// The first `data_begin()` bytes of an image. `hashes`: of the tensors.
    [[nodiscard]] std::string header(const Version& version,
                                     std::span<const std::uint64_t> hashes) const;

   private:
    ImageLayout() = default;

    PartId id_;
    std::vector<TensorEntry> tensors_;
    std::uint64_t bytes_ = 0;
    std::string header_;  // With zeros in the places below.
    std::size_t version_at_ = 0;
    std::size_t hashes_at_ = 0;
    std::size_t own_hash_at_ = 0;
};

/// The content of an image's header.
struct ImageHeader {
    Version version{};
    PartId id{};
    std::vector<TensorEntry> tensors{};  ///< In the order of the data, which fills the image.
    std::uint64_t data_begin = 0;
    std::uint64_t bytes = 0;  ///< Of the whole image.

    /// Null if there is none.
    [[nodiscard]] const TensorEntry* find(std::string_view name) const noexcept;
};

/// The number of bytes up to the data, from the first 8 bytes of an image. Errors:
/// invalid_argument.
[[nodiscard]] Result<std::uint64_t> header_bytes(std::span<const std::byte> beginning);
/// Reads the header from the first bytes of an image, at least as many as header_bytes() says.
/// Nothing in it is trusted: all places are within the image, and the hash of the header is right.
/// Errors: invalid_argument, with the predicate of a sentence about the image.
[[nodiscard]] Result<ImageHeader> read_header(std::span<const std::byte> beginning);

/// Reads the header of a whole image and verifies the hash of each tensor, on up to `threads`
/// threads. Errors: invalid_argument, with the predicate of a sentence about the image, which names
/// the tensor.
[[nodiscard]] Result<ImageHeader> verify_image(std::span<const std::byte> image,
                                               unsigned threads = 1);

}  // namespace regroup::snapshot
