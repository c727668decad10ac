// SPDX-License-Identifier: Apache-2.0
//
// The wire format of PyTorch's TCPStore, in the dialects of all its releases. Integers are
// little-endian. A request is an opcode byte and its arguments; a text is its length as u64 and its
// bytes; a list is its count as u64 and its members. A request has no length field, and there is no
// error reply: an invalid request ends the connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/ensure.h"
#include "rendezvous/base/result.h"
#include "rendezvous/store/store_limits.h"

namespace regroup::store {

/// The dialects differ in their opcodes. The current one begins each connection with a greeting,
/// `validate`; the older two begin with any request, and cannot be told apart.
enum class Dialect : std::uint8_t {
    current,  // PyTorch 2.2 and newer; each release only adds opcodes.
    v2_1,     // PyTorch 2.1.
    v1_13,    // PyTorch 1.13 and 2.0: two connections for each store, one of them for watching.
};

/// The opcodes of the current dialect have these numbers; the other dialects' have others.
enum class Opcode : std::uint8_t {
    //            texts                   number    reply
    validate,     //                      magic     none
    set,          // key, value                     none
    compare_set,  // key, expected, desired         text
    get,          // key                            text, empty for an absent key
    add,          // key                  amount    i64 sum
    check,        // keys                           kReady or kNotReady
    wait,         // keys                           kStopWaiting, once all exist
    num_keys,     //                                i64
    delete_key,   // key                            i64 1 if it was there, else 0
    append,       // key, value                     none
    multi_get,    // keys                           a text for each
    multi_set,    // (key, value)...                none
    cancel_wait,  //                                kWaitCancelled, wait or no wait
    ping,         //                      nonce     the nonce as u32
    queue_push,   // key, value                     none
    queue_pop,    // key                            i64 items before; unless 0, a text
    queue_len,    // key                            i64
    list_keys,    //                                i64 count, a text for each
    barrier,      // key                  world     kStopWaiting, once all have arrived
    // Only in 1.13. No event is ever sent for it, since nothing in PyTorch waits for one.
    watch_key,  // key                            kKeyWatched
};
/// Of the current dialect.
inline constexpr std::size_t kOpcodeCount = 19;

inline constexpr std::uint32_t kMagic = 0x3C85F7CE;
/// The first bytes of every connection of the current dialect, which distinguish it from other
/// protocols on the same port.
inline constexpr std::array<char, 5> kFirstBytes = {'\x00', '\xCE', '\xF7', '\x85', '\x3C'};

inline constexpr char kReady = 0;
inline constexpr char kNotReady = 1;
inline constexpr char kStopWaiting = 0;
inline constexpr char kWaitCancelled = 1;
inline constexpr char kKeyWatched = 3;

/// Any request. See Opcode for the meaning of the members in each.
struct Request {
    Opcode opcode = Opcode::ping;
    std::vector<std::string> texts;
    std::int64_t number = 0;

    friend bool operator==(const Request&, const Request&) = default;
};

/// `invalid_argument` if a server with these limits would refuse the request for its length.
Result<void> check_limits(const Request& request, const Limits& limits);

/// Appends the request's bytes. Requires as many texts as the opcode takes, and a dialect that has
/// this opcode.
void encode(const Request& request, std::string& bytes, Dialect dialect = Dialect::current);

/// The opcodes of a dialect in the order of their numbers.
[[nodiscard]] std::span<const Opcode> opcodes_of(Dialect dialect) noexcept;

void append_u32(std::string& bytes, std::uint32_t value);
void append_i64(std::string& bytes, std::int64_t value);
void append_text(std::string& bytes, std::string_view text);

/// Decodes the first 4 or 8 bytes of `bytes`. Requires that they are there.
[[nodiscard]] std::uint32_t read_u32(const char* bytes) noexcept;
[[nodiscard]] std::int64_t read_i64(const char* bytes) noexcept;

/// Turns the bytes of one connection into requests, in any segmentation. Its memory grows with the
/// received bytes of the current request, never with announced lengths, and is bounded by `limits`.
class RequestParser {
   public:
    /// `older` is the dialect of connections that do not begin with a greeting; not `current`.
    explicit RequestParser(const Limits& limits = {}, Dialect older = Dialect::v1_13)
        : limits_(limits), older_(older) {
        ENSURE(older != Dialect::current);
    }

    /// Takes bytes off the front of `bytes`, up to the end of one request. Returns that request, or
    /// nothing when all bytes have been taken and the request is not complete. A violation of the
    /// protocol is `invalid_argument` with a sentence; the parser must not be used after it.
    ///
    /// A connection whose first five bytes are `kFirstBytes` speaks the current dialect, and that
    /// first request, `validate`, is returned too.
    Result<std::optional<Request>> next(std::string_view& bytes);

    /// The memory that the incomplete request takes, approximately.
    [[nodiscard]] std::size_t held_bytes() const noexcept {
        constexpr std::size_t kTextBytes = 48;
        return request_bytes_ - text_bytes_left_ + request_.texts.size() * kTextBytes;
    }

    /// The dialect of this connection, once its first bytes are known.
    [[nodiscard]] std::optional<Dialect> dialect() const noexcept { return dialect_; }

   private:
    enum class Stage : std::uint8_t { opcode, count, text_length, text, number };

    [[nodiscard]] Result<void> tell_dialect(std::string_view& bytes);
    [[nodiscard]] Result<std::optional<Request>> advance(std::string_view& bytes);

    [[nodiscard]] bool take_number(std::string_view& bytes, std::size_t width);
    [[nodiscard]] Result<void> begin(unsigned char opcode);
    [[nodiscard]] Result<void> begin_texts(std::uint64_t groups_count);
    [[nodiscard]] Result<void> begin_text(std::uint64_t text_bytes);
    void next_argument();
    [[nodiscard]] Result<std::optional<Request>> finish();

    Limits limits_;
    Dialect older_;
    std::optional<Dialect> dialect_;
    std::size_t greeted_bytes_ = 0;  ///< Bytes of `kFirstBytes` received, before anything else.

    // The current request.
    Stage stage_ = Stage::opcode;
    bool complete_ = false;
    Request request_;
    std::size_t texts_left_ = 0;
    std::size_t text_bytes_left_ = 0;
    std::size_t request_bytes_ = 0;

    // The current integer.
    std::uint64_t number_ = 0;
    std::size_t number_bytes_ = 0;
};

}  // namespace regroup::store
