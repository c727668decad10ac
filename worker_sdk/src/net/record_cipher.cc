// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/net/record_cipher.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <sodium.h>
#include <utility>

#include "rendezvous/base/ensure.h"

namespace regroup::net {
namespace {

constexpr std::size_t kHeadBytes = 4;
constexpr std::size_t kRecordTagBytes = 16;
static_assert(crypto_aead_aes256gcm_ABYTES == kRecordTagBytes);
static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == kRecordTagBytes);
using RecordNonce = std::array<unsigned char, 12>;
static_assert(crypto_aead_aes256gcm_NPUBBYTES == sizeof(RecordNonce));
static_assert(crypto_aead_chacha20poly1305_ietf_NPUBBYTES == sizeof(RecordNonce));

RecordNonce nonce_of(std::uint64_t number) {
    RecordNonce nonce{};
    std::memcpy(nonce.data(), &number, sizeof number);
    return nonce;
}

unsigned char* raw(std::byte* bytes) {
    return reinterpret_cast<unsigned char*>(bytes);
}

}  // namespace

bool has_fast_aes() {
    ENSURE(sodium_init() >= 0);
    return crypto_aead_aes256gcm_is_available() != 0;
}

struct RecordCipher::State {
    State(const security::Key& key_in, bool aes_in) : key(key_in), aes(aes_in) {
        if (aes) {
            crypto_aead_aes256gcm_beforenm(&prepared, key.bytes().data());
        }
    }
    ~State() { sodium_memzero(&prepared, sizeof prepared); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    const security::Key key;
    const bool aes;
    crypto_aead_aes256gcm_state prepared{};
};

RecordCipher::RecordCipher(const security::Key& key, bool aes)
    : state_(std::make_unique<State>(key, aes)) {}

RecordCipher::~RecordCipher() = default;

std::size_t RecordCipher::seal(std::byte* record, std::size_t plain_bytes) {
    const auto length = static_cast<std::uint32_t>(plain_bytes);
    std::memcpy(record, &length, sizeof length);
    const RecordNonce nonce = nonce_of(number_++);
    unsigned char* const text = raw(record + kHeadBytes);
    if (state_->aes) {
        crypto_aead_aes256gcm_encrypt_afternm(text, nullptr, text, plain_bytes, raw(record),
                                              kHeadBytes, nullptr, nonce.data(), &state_->prepared);
    } else {
        crypto_aead_chacha20poly1305_ietf_encrypt(text, nullptr, text, plain_bytes, raw(record),
                                                  kHeadBytes, nullptr, nonce.data(),
                                                  state_->key.bytes().data());
    }
    return kHeadBytes + plain_bytes + kRecordTagBytes;
}

std::size_t RecordCipher::record_bytes(const std::byte* record) {
    std::uint32_t length = 0;
    std::memcpy(&length, record, sizeof length);
    return length == 0 || length > kPlainBytesMax ? 0 : kHeadBytes + length + kRecordTagBytes;
}

bool RecordCipher::open(std::byte* record, std::size_t record_bytes) {
    const RecordNonce nonce = nonce_of(number_++);
    unsigned char* const text = raw(record + kHeadBytes);
    const std::size_t bytes = record_bytes - kHeadBytes;
    const int status = state_->aes ? crypto_aead_aes256gcm_decrypt_afternm(
                                         text, nullptr, nullptr, text, bytes, raw(record),
                                         kHeadBytes, nonce.data(), &state_->prepared)
                                   : crypto_aead_chacha20poly1305_ietf_decrypt(
                                         text, nullptr, nullptr, text, bytes, raw(record),
                                         kHeadBytes, nonce.data(), state_->key.bytes().data());
    return status == 0;
}

RecordChannel::RecordChannel(const SessionKeys& keys)
    : seal_(keys.sends, keys.aes),
      open_(keys.receives, keys.aes),
      out_(RecordCipher::kRecordBytesMax),
      in_(2 * RecordCipher::kRecordBytesMax) {}

std::size_t RecordChannel::write(std::span<const iovec> parts, const Move& raw_write) {
    std::size_t told = 0;
    while (true) {
        while (out_begin_ < out_end_) {
            const std::size_t count =
                raw_write(std::span(out_).subspan(out_begin_, out_end_ - out_begin_));
            if (count == 0) {
                return told;
            }
            out_begin_ += count;
        }
        written_ += std::exchange(out_plain_, 0);
        // Fewer or more bytes may be written than the caller has given.
        std::size_t skip = told + written_;
        std::size_t given = 0;
        out_begin_ = out_end_ = 0;
        for (const iovec& part : parts) {
            given += part.iov_len;
            const std::size_t skipped = std::min(skip, part.iov_len);
            skip -= skipped;
            const std::size_t count =
                std::min(part.iov_len - skipped, RecordCipher::kPlainBytesMax - out_plain_);
            // An empty part may be null, which memcpy does not take.
            std::copy_n(static_cast<const std::byte*>(part.iov_base) + skipped, count,
                        out_.data() + kHeadBytes + out_plain_);
            out_plain_ += count;
        }
        const std::size_t news = std::min(written_, given - told);
        told += news;
        written_ -= news;
        if (out_plain_ == 0) {
            return told;
        }
        out_end_ = seal_.seal(out_.data(), out_plain_);
    }
}

bool RecordChannel::holds_bytes() const noexcept {
    if (plain_begin_ < plain_end_) {
        return true;
    }
    const std::size_t have = in_end_ - in_begin_;
    if (spoilt_ || have < kHeadBytes) {
        return false;
    }
    return have >= RecordCipher::record_bytes(in_.data() + in_begin_);
}

/// Decrypts the next record if it is there.
bool RecordChannel::next_record(const Move& raw_read) {
    while (!spoilt_) {
        std::size_t wanted = kHeadBytes;
        if (in_end_ - in_begin_ >= kHeadBytes) {
            wanted = RecordCipher::record_bytes(in_.data() + in_begin_);
            if (wanted == 0) {
                spoilt_ = true;
                return false;
            }
        }
        if (wanted > kHeadBytes && in_end_ - in_begin_ >= wanted) {
            spoilt_ = !open_.open(in_.data() + in_begin_, wanted);
            plain_begin_ = in_begin_ + kHeadBytes;
            plain_end_ = spoilt_ ? plain_begin_ : in_begin_ + wanted - kRecordTagBytes;
            in_begin_ += wanted;
            return !spoilt_;
        }
        if (in_begin_ + wanted > in_.size()) {
            std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
            in_end_ -= in_begin_;
            in_begin_ = 0;
        }
        const std::size_t count = raw_read(std::span(in_).subspan(in_end_));
        if (count == 0) {
            return false;
        }
        in_end_ += count;
    }
    return false;
}

std::size_t RecordChannel::read(std::span<std::byte> into, const Move& raw_read) {
    std::size_t done = 0;
    while (done < into.size()) {
        if (plain_begin_ == plain_end_) {
            if (in_begin_ == in_end_) {
                in_begin_ = in_end_ = 0;
            }
            if (!next_record(raw_read)) {
                break;
            }
        }
        const std::size_t count = std::min(into.size() - done, plain_end_ - plain_begin_);
        std::memcpy(into.data() + done, in_.data() + plain_begin_, count);
        plain_begin_ += count;
        done += count;
    }
    return done;
}

}  // namespace regroup::net
