// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/net/notice_line.h"

#include <array>
#include <cstring>
#include <span>

#include "worker_sdk/src/net/wire_struct.h"

namespace regroup::net {
namespace {

/// The standings that wait for a neighbour which does not read.
constexpr std::size_t kUnsentBytesMax = std::size_t{256} << 10U;

/// Precedes `text_bytes` of text.
struct NoticeHeader {
    Notice::Kind kind = Notice::Kind::left;
    Errc code = Errc::disconnected;
    std::uint32_t origin = 0;
    std::uint32_t about = 0;
    std::uint32_t text_bytes = 0;
};

}  // namespace

std::optional<Notice> NoticeLine::read(Stream& stream) {
    std::array<std::byte, 4096> piece{};
    while (stream.readable && !stream.input_ended()) {
        const std::size_t count = stream.read_some(piece);
        arrived_.append(reinterpret_cast<const char*>(piece.data()), count);
    }
    NoticeHeader header;
    if (arrived_.size() < sizeof header) {
        return std::nullopt;
    }
    std::memcpy(&header, arrived_.data(), sizeof header);
    is_spoilt_ = is_spoilt_ || header.kind > Notice::Kind::standing || header.code > Errc::system ||
                 header.text_bytes > Notice::kTextBytesMax;
    if (is_spoilt_ || arrived_.size() < sizeof header + header.text_bytes) {
        return std::nullopt;
    }
    Notice notice{.kind = header.kind,
                  .code = header.code,
                  .origin = header.origin,
                  .about = header.about,
                  .text = arrived_.substr(sizeof header, header.text_bytes)};
    arrived_.erase(0, sizeof header + header.text_bytes);
    return notice;
}

void NoticeLine::send(Stream& stream, const Notice& notice) noexcept {
    if (notice.kind == Notice::Kind::standing && unsent_.size() > kUnsentBytesMax) {
        return;
    }
    const std::string text = notice.text.substr(0, Notice::kTextBytesMax);
    const NoticeHeader header{.kind = notice.kind,
                              .code = notice.code,
                              .origin = notice.origin,
                              .about = notice.about,
                              .text_bytes = static_cast<std::uint32_t>(text.size())};
    const auto head = bytes_of(header);
    unsent_.append(reinterpret_cast<const char*>(head.data()), head.size());
    unsent_ += text;
    flush(stream);
}

void NoticeLine::flush(Stream& stream) noexcept {
    while (!unsent_.empty()) {
        const std::size_t count = stream.write_some(std::as_bytes(std::span(unsent_)));
        if (count == 0) {
            return;  // There is no room, or the connection has ended.
        }
        unsent_.erase(0, count);
    }
}

}  // namespace regroup::net
