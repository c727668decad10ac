// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/store_wire.h"

#include <algorithm>

namespace regroup::store {
namespace {

/// The form of a request's arguments: an optional count of groups, the texts of each group (or of
/// the only one) of which the first is a key and the others are values, and an optional number.
struct Shape {
    bool counted;
    std::size_t texts_count;
    std::size_t number_bytes;
};

constexpr std::array<Shape, kOpcodeCount + 1> kShapes = {{
    {false, 0, 4},  // validate
    {false, 2, 0},  // set
    {false, 3, 0},  // compare_set
    {false, 1, 0},  // get
    {false, 1, 8},  // add
    {true, 1, 0},   // check
    {true, 1, 0},   // wait
    {false, 0, 0},  // num_keys
    {false, 1, 0},  // delete_key
    {false, 2, 0},  // append
    {true, 1, 0},   // multi_get
    {true, 2, 0},   // multi_set
    {false, 0, 0},  // cancel_wait
    {false, 0, 4},  // ping
    {false, 2, 0},  // queue_push
    {false, 1, 0},  // queue_pop
    {false, 1, 0},  // queue_len
    {false, 0, 0},  // list_keys
    {false, 1, 8},  // barrier
    {false, 1, 0},  // watch_key
}};

constexpr std::array<Opcode, kOpcodeCount> kCurrentOpcodes = {
    Opcode::validate,    Opcode::set,       Opcode::compare_set, Opcode::get,
    Opcode::add,         Opcode::check,     Opcode::wait,        Opcode::num_keys,
    Opcode::delete_key,  Opcode::append,    Opcode::multi_get,   Opcode::multi_set,
    Opcode::cancel_wait, Opcode::ping,      Opcode::queue_push,  Opcode::queue_pop,
    Opcode::queue_len,   Opcode::list_keys, Opcode::barrier,
};
constexpr std::array kOpcodesOf21 = {
    Opcode::set,    Opcode::compare_set, Opcode::get,       Opcode::add,
    Opcode::check,  Opcode::wait,        Opcode::num_keys,  Opcode::delete_key,
    Opcode::append, Opcode::multi_get,   Opcode::multi_set, Opcode::cancel_wait,
};
constexpr std::array kOpcodesOf113 = {
    Opcode::set,  Opcode::compare_set, Opcode::get,       Opcode::add,        Opcode::check,
    Opcode::wait, Opcode::num_keys,    Opcode::watch_key, Opcode::delete_key,
};
/// More than this many bytes of the greeting would be the length of a key that no store accepts, so
/// the client means the greeting.
constexpr std::size_t kTellingBytes = kFirstBytes.size() - 1;

const Shape& shape_of(Opcode opcode) {
    return kShapes[static_cast<std::size_t>(opcode)];
}

void append_number(std::string& bytes, std::uint64_t value, std::size_t width) {
    for (std::size_t i = 0; i < width; ++i) {
        bytes.push_back(static_cast<char>(value >> (8 * i) & 0xFFU));
    }
}

std::uint64_t read_number(const char* bytes, std::size_t width) noexcept {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < width; ++i) {
        value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    }
    return value;
}

std::string beyond(const char* what, std::uint64_t count, std::size_t limit) {
    return std::string(what) + " of " + std::to_string(count) + "; the limit is " +
           std::to_string(limit);
}

}  // namespace

Result<void> check_limits(const Request& request, const Limits& limits) {
    const Shape& shape = shape_of(request.opcode);
    if (shape.counted && request.texts.size() / shape.texts_count > limits.keys_max) {
        return invalid_argument(
            beyond("a number of keys", request.texts.size() / shape.texts_count, limits.keys_max));
    }
    std::size_t request_bytes = 0;
    for (std::size_t i = 0; i < request.texts.size(); ++i) {
        const bool is_key = i % shape.texts_count == 0;
        const std::size_t text_bytes = request.texts[i].size();
        const std::size_t limit = is_key ? limits.key_bytes_max : limits.value_bytes_max;
        if (text_bytes > limit) {
            return invalid_argument(
                beyond(is_key ? "a key length" : "a value length", text_bytes, limit));
        }
        request_bytes += text_bytes;
    }
    if (request_bytes > limits.request_bytes_max) {
        return invalid_argument(
            beyond("a request length", request_bytes, limits.request_bytes_max));
    }
    return {};
}

// ---- Encoding.

void append_u32(std::string& bytes, std::uint32_t value) {
    append_number(bytes, value, 4);
}

void append_i64(std::string& bytes, std::int64_t value) {
    append_number(bytes, static_cast<std::uint64_t>(value), 8);
}

void append_text(std::string& bytes, std::string_view text) {
    append_number(bytes, text.size(), 8);
    bytes.append(text);
}

std::uint32_t read_u32(const char* bytes) noexcept {
    return static_cast<std::uint32_t>(read_number(bytes, 4));
}

std::int64_t read_i64(const char* bytes) noexcept {
    return static_cast<std::int64_t>(read_number(bytes, 8));
}

std::span<const Opcode> opcodes_of(Dialect dialect) noexcept {
    switch (dialect) {
        case Dialect::current:
            return kCurrentOpcodes;
        case Dialect::v2_1:
            return kOpcodesOf21;
        case Dialect::v1_13:
            return kOpcodesOf113;
    }
    return {};
}

void encode(const Request& request, std::string& bytes, Dialect dialect) {
    const Shape& shape = shape_of(request.opcode);
    const std::span<const Opcode> opcodes = opcodes_of(dialect);
    const auto opcode = std::find(opcodes.begin(), opcodes.end(), request.opcode);
    ENSURE(opcode != opcodes.end());
    bytes.push_back(static_cast<char>(opcode - opcodes.begin()));
    if (shape.counted) {
        ENSURE(request.texts.size() % shape.texts_count == 0);
        append_number(bytes, request.texts.size() / shape.texts_count, 8);
    } else {
        ENSURE(request.texts.size() == shape.texts_count);
    }
    for (const std::string& text : request.texts) {
        append_text(bytes, text);
    }
    append_number(bytes, static_cast<std::uint64_t>(request.number), shape.number_bytes);
}

// ---- Parsing.

Result<std::optional<Request>> RequestParser::next(std::string_view& bytes) {
    if (!dialect_) {
        if (const auto told = tell_dialect(bytes); !told) {
            return told.error();
        }
        if (!dialect_) {
            return std::optional<Request>();
        }
        if (dialect_ == Dialect::current) {
            return std::optional<Request>(Request{Opcode::validate, {}, kMagic});
        }
        // The bytes that looked like a greeting are the beginning of a request.
        std::string_view begun(kFirstBytes.data(), greeted_bytes_);
        if (const auto none = advance(begun); !none) {
            return none.error();
        }
    }
    return advance(bytes);
}

/// Takes a possible greeting off the front of `bytes`, and sets dialect_ once it is known. An older
/// `set` differs from the greeting in the length of its key, even if the bytes come one by one.
Result<void> RequestParser::tell_dialect(std::string_view& bytes) {
    while (!bytes.empty() && bytes.front() == kFirstBytes[greeted_bytes_]) {
        bytes.remove_prefix(1);
        if (++greeted_bytes_ == kFirstBytes.size()) {
            dialect_ = Dialect::current;
            return {};
        }
    }
    if (bytes.empty()) {
        return {};
    }
    if (greeted_bytes_ == kTellingBytes) {
        return invalid_argument("a wrong magic number: this is no TCPStore client");
    }
    dialect_ = older_;
    return {};
}

Result<std::optional<Request>> RequestParser::advance(std::string_view& bytes) {
    while (!bytes.empty()) {
        Result<void> step;
        switch (stage_) {
            case Stage::opcode: {
                const auto opcode = static_cast<unsigned char>(bytes.front());
                bytes.remove_prefix(1);
                step = begin(opcode);
                break;
            }
            case Stage::count:
                if (take_number(bytes, 8)) {
                    step = begin_texts(number_);
                }
                break;
            case Stage::text_length:
                if (take_number(bytes, 8)) {
                    step = begin_text(number_);
                }
                break;
            case Stage::text: {
                const std::size_t taken = std::min(text_bytes_left_, bytes.size());
                request_.texts.back().append(bytes.substr(0, taken));
                bytes.remove_prefix(taken);
                text_bytes_left_ -= taken;
                if (text_bytes_left_ == 0) {
                    next_argument();
                }
                break;
            }
            case Stage::number:
                if (take_number(bytes, shape_of(request_.opcode).number_bytes)) {
                    request_.number = static_cast<std::int64_t>(number_);
                    complete_ = true;
                }
                break;
        }
        if (!step) {
            return step.error();
        }
        if (complete_) {
            return finish();
        }
    }
    return std::optional<Request>();
}

/// Collects an integer of `width` bytes in number_; true when it is complete.
bool RequestParser::take_number(std::string_view& bytes, std::size_t width) {
    if (number_bytes_ == 0) {
        number_ = 0;
    }
    while (number_bytes_ < width && !bytes.empty()) {
        number_ |= std::uint64_t{static_cast<unsigned char>(bytes.front())} << (8 * number_bytes_);
        bytes.remove_prefix(1);
        ++number_bytes_;
    }
    if (number_bytes_ < width) {
        return false;
    }
    number_bytes_ = 0;
    return true;
}

Result<void> RequestParser::begin(unsigned char opcode) {
    const std::span<const Opcode> opcodes = opcodes_of(*dialect_);
    if (opcode >= opcodes.size()) {
        return invalid_argument("an unknown request, opcode " + std::to_string(opcode));
    }
    request_.opcode = opcodes[opcode];
    const Shape& shape = shape_of(request_.opcode);
    if (shape.counted) {
        stage_ = Stage::count;
        return {};
    }
    texts_left_ = shape.texts_count;
    next_argument();
    return {};
}

Result<void> RequestParser::begin_texts(std::uint64_t groups_count) {
    if (groups_count > limits_.keys_max) {
        return invalid_argument(beyond("a number of keys", groups_count, limits_.keys_max));
    }
    texts_left_ = static_cast<std::size_t>(groups_count) * shape_of(request_.opcode).texts_count;
    next_argument();
    return {};
}

Result<void> RequestParser::begin_text(std::uint64_t text_bytes) {
    const bool is_key = request_.texts.size() % shape_of(request_.opcode).texts_count == 0;
    const std::size_t limit = is_key ? limits_.key_bytes_max : limits_.value_bytes_max;
    if (text_bytes > limit) {
        return invalid_argument(
            beyond(is_key ? "a key length" : "a value length", text_bytes, limit));
    }
    if (text_bytes > limits_.request_bytes_max - request_bytes_) {
        return invalid_argument(
            beyond("a request length", request_bytes_ + text_bytes, limits_.request_bytes_max));
    }
    // Memory grows only with the bytes received, not with the announced length.
    request_.texts.emplace_back();
    request_bytes_ += static_cast<std::size_t>(text_bytes);
    text_bytes_left_ = static_cast<std::size_t>(text_bytes);
    --texts_left_;
    stage_ = Stage::text;
    if (text_bytes == 0) {
        next_argument();
    }
    return {};
}

void RequestParser::next_argument() {
    if (texts_left_ > 0) {
        stage_ = Stage::text_length;
    } else if (shape_of(request_.opcode).number_bytes > 0) {
        stage_ = Stage::number;
    } else {
        complete_ = true;
    }
}

Result<std::optional<Request>> RequestParser::finish() {
    if (request_.opcode == Opcode::validate && request_.number != kMagic) {
        return invalid_argument("a wrong magic number: this is no TCPStore client");
    }
    stage_ = Stage::opcode;
    complete_ = false;
    request_bytes_ = 0;
    return std::optional<Request>(std::exchange(request_, Request()));
}

}  // namespace regroup::store
