// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <sys/uio.h>
#include <vector>

#include "rendezvous/security/key.h"

namespace regroup::net {

/// The keys of one connection. Each direction has one of its own, and no key serves two
/// connections.
struct SessionKeys {
    security::Key sends;
    security::Key receives;
    bool aes = false;  ///< AES-256-GCM, else ChaCha20-Poly1305.
};

/// True if this processor does AES-256-GCM in hardware.
[[nodiscard]] bool has_fast_aes();

/// One direction of an encrypted connection. The bytes travel in records: the length, then the
/// encrypted bytes and their code. The number of the record is the nonce, so records cannot be
/// dropped, repeated or exchanged. Not thread-safe.
class RecordCipher {
   public:
    static constexpr std::size_t kPlainBytesMax = std::size_t{64} << 10U;
    static constexpr std::size_t kRecordBytesMax = 4 + kPlainBytesMax + 16;

    RecordCipher(const security::Key& key, bool aes);
    ~RecordCipher();
    RecordCipher(const RecordCipher&) = delete;
    RecordCipher& operator=(const RecordCipher&) = delete;

    /// `record` holds `plain_bytes` behind 4 bytes of room; returns the length of the record that
    /// takes their place.
    [[nodiscard]] std::size_t seal(std::byte* record, std::size_t plain_bytes);
    /// The length of the whole record of which at least 4 bytes are there; 0 if it is malformed.
    [[nodiscard]] static std::size_t record_bytes(const std::byte* record);
    /// Decrypts a whole record in place; false if it is not the next one that the far end sealed.
    [[nodiscard]] bool open(std::byte* record, std::size_t record_bytes);

   private:
    struct State;
    const std::unique_ptr<State> state_;
    std::uint64_t number_ = 0;
};

/// Writes and reads a connection in records. A caller that was told of fewer bytes than it gave
/// comes back with the rest, unchanged.
class RecordChannel {
   public:
    /// Moves raw bytes and returns how many; 0: none now.
    using Move = std::function<std::size_t(std::span<std::byte>)>;

    explicit RecordChannel(const SessionKeys& keys);

    [[nodiscard]] std::size_t write(std::span<const iovec> parts, const Move& raw_write);
    [[nodiscard]] std::size_t read(std::span<std::byte> into, const Move& raw_read);
    /// True if `read` can give bytes without new ones from the connection.
    [[nodiscard]] bool holds_bytes() const noexcept;
    /// True once a record was not that of the far end: nothing more can be read.
    [[nodiscard]] bool is_spoilt() const noexcept { return spoilt_; }

   private:
    [[nodiscard]] bool next_record(const Move& raw_read);

    RecordCipher seal_;
    RecordCipher open_;
    std::vector<std::byte> out_;  // The record that is being written.
    std::size_t out_end_ = 0;
    std::size_t out_begin_ = 0;
    std::size_t out_plain_ = 0;  // The bytes of callers in it.
    std::size_t written_ = 0;    // Bytes that are written, and of which the caller does not know.
    std::vector<std::byte> in_;
    std::size_t in_begin_ = 0;
    std::size_t in_end_ = 0;
    std::size_t plain_begin_ = 0;  // Decrypted bytes in `in_`.
    std::size_t plain_end_ = 0;
    bool spoilt_ = false;
};

}  // namespace regroup::net
