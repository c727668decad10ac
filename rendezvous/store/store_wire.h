// SPDX-License-Identifier: Apache-2.0
//
// The bytes of PyTorch's TCPStore, dialect of releases 2.12 to 2.14. Integers are little-endian. A
// request is an opcode byte and its arguments; a text is its length as u64 and its bytes; a list is
// its count as u64 and its members. Nothing tells the length of a request, and there is no reply
// that says no: a request that breaks the rules ends the connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/store/store_limits.h"

namespace regroup::store {

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
};
inline constexpr std::size_t kOpcodeCount = 19;

inline constexpr std::uint32_t kMagic = 0x3C85F7CE;
/// How every connection of a client begins, which tells it from other protocols on one port.
inline constexpr std::array<char, 5> kFirstBytes = {'\x00', '\xCE', '\xF7', '\x85', '\x3C'};

inline constexpr char kReady = 0;
inline constexpr char kNotReady = 1;
inline constexpr char kStopWaiting = 0;
inline constexpr char kWaitCancelled = 1;

/// Any request. See Opcode for what the members mean in each.
struct Request {
    Opcode opcode = Opcode::ping;
    std::vector<std::string> texts;
    std::int64_t number = 0;

    friend bool operator==(const Request&, const Request&) = default;
};

/// `invalid_argument` if a server with these limits would refuse the request for its length.
Result<void> check_limits(const Request& request, const Limits& limits);

/// Appends the request's bytes. Requires as many texts as the opcode takes.
void encode(const Request& request, std::string& bytes);

void append_u32(std::string& bytes, std::uint32_t value);
void append_i64(std::string& bytes, std::int64_t value);
void append_text(std::string& bytes, std::string_view text);

/// Decodes the first 4 or 8 bytes of `bytes`. Requires that they are there.
[[nodiscard]] std::uint32_t read_u32(const char* bytes) noexcept;
[[nodiscard]] std::int64_t read_i64(const char* bytes) noexcept;

/// Turns the bytes of one connection into requests, however they are cut into segments. Its memory
/// grows with what has arrived of the request at hand, never with what that one announces, and is
/// bounded by `limits`.
class RequestParser {
   public:
    explicit RequestParser(const Limits& limits = {}) : limits_(limits) {}

    /// Takes bytes off the front of `bytes`, up to the end of one request. Returns that request, or
    /// nothing when all bytes have been taken and the request is not complete. A violation of the
    /// protocol is `invalid_argument` with a sentence; the parser must not be used after it.
    ///
    /// The first request of a connection must be `validate`. That one is returned too.
    Result<std::optional<Request>> next(std::string_view& bytes);

   private:
    enum class Stage : std::uint8_t { opcode, count, text_length, text, number };

    [[nodiscard]] bool take_number(std::string_view& bytes, std::size_t width);
    [[nodiscard]] Result<void> begin(unsigned char opcode);
    [[nodiscard]] Result<void> begin_texts(std::uint64_t groups_count);
    [[nodiscard]] Result<void> begin_text(std::uint64_t text_bytes);
    void next_argument();
    [[nodiscard]] Result<std::optional<Request>> finish();

    Limits limits_;
    bool validated_ = false;

    // The request at hand.
    Stage stage_ = Stage::opcode;
    bool complete_ = false;
    Request request_;
    std::size_t texts_left_ = 0;
    std::size_t text_bytes_left_ = 0;
    std::size_t request_bytes_ = 0;

    // The integer at hand.
    std::uint64_t number_ = 0;
    std::size_t number_bytes_ = 0;
};

}  // namespace regroup::store
