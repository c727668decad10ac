// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "worker_sdk/src/group/standing.h"

namespace regroup::cpu {

// The wire format between ranks equals the layout in memory: the ranks of one group run the same
// program on machines of one kind. On any other machine the magic number does not match.
static_assert(std::endian::native == std::endian::little);

/// Each connection carries one kind of traffic and, except for control, in one direction only: from
/// the rank that dialled. So a message without a recv never delays a collective, and two ranks that
/// dial each other at the same moment are no special case.
enum class ChannelKind : std::uint32_t { control, collective, message };
inline constexpr std::uint32_t kChannelKinds = 3;

/// The dialling rank's first words. The accepting rank closes the connection unless every field is
/// as it expects. So strangers and workers of an older round cannot connect.
struct Hello {
    static constexpr std::uint32_t kMagic = 0x31504752;  // "RGP1"

    std::uint32_t magic = kMagic;
    ChannelKind kind = ChannelKind::control;
    std::uint32_t source = 0;
    std::uint32_t target = 0;
    std::uint64_t round = 0;
    std::uint64_t group = 0;  ///< Hash of the group's name and incarnation.
    std::uint64_t token = 0;  ///< The random number that the target published in the store.

    bool operator==(const Hello&) const = default;
};

/// The answer to a Hello.
struct Welcome {
    static constexpr std::uint32_t kMagic = 0x32504752;  // "RGP2"

    std::uint32_t magic = kMagic;
    std::uint32_t source = 0;  ///< The rank that was dialled.

    bool operator==(const Welcome&) const = default;
};

/// Precedes each message between two ranks.
struct MessageHeader {
    std::uint64_t count = 0;
    std::uint32_t tag = 0;
    DType dtype = DType::uint8;
    std::array<std::uint8_t, 3> zero{};
};

enum class NoticeKind : std::uint32_t {
    leave,     ///< The sender has left in order; nothing is wrong.
    failure,   ///< The group has failed; `text_bytes` of explanation follow.
    standing,  ///< The reporter is at this collective; a Standing follows.
};

/// The header of a notice on a control connection.
struct Notice {
    static constexpr std::uint32_t kTextBytesMax = 2048;

    NoticeKind kind = NoticeKind::leave;
    Errc code = Errc::disconnected;
    std::uint32_t reporter = 0;  ///< The rank that met the failure first, or whose standing it is.
    /// The rank to which its connection has broken, if that is the failure.
    std::uint32_t broken_to = kNobody;
    std::uint32_t text_bytes = 0;

    static constexpr std::uint32_t kNobody = 0xffffffffU;
};

template <class T>
concept WireStruct = std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>;

static_assert(WireStruct<Hello> && WireStruct<Welcome> && WireStruct<Signature> &&
              WireStruct<MessageHeader> && WireStruct<Notice> && WireStruct<Standing>);

template <WireStruct T>
std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

/// A wire struct that arrives in pieces.
template <WireStruct T>
class Partial {
   public:
    [[nodiscard]] bool complete() const noexcept { return have_ == sizeof(T); }
    [[nodiscard]] bool started() const noexcept { return have_ != 0; }
    /// Requires `complete()`.
    [[nodiscard]] T value() const noexcept {
        T result;
        std::memcpy(&result, bytes_.data(), sizeof result);
        return result;
    }
    /// Where the next bytes go; tell `filled` how many came.
    [[nodiscard]] std::span<std::byte> space() noexcept { return std::span(bytes_).subspan(have_); }
    void filled(std::size_t count) noexcept { have_ += count; }
    void reset() noexcept { have_ = 0; }

   private:
    std::array<std::byte, sizeof(T)> bytes_{};
    std::size_t have_ = 0;
};

}  // namespace regroup::cpu
