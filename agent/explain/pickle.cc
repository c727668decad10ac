// SPDX-License-Identifier: Apache-2.0
#include "agent/explain/pickle.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace regroup::agent {
namespace {

using Out = nlohmann::json_sax<nlohmann::json>;

constexpr int kDepthMax = 64;
constexpr std::size_t kBytesMax = std::size_t{1} << 28U;
constexpr std::size_t kStackMax = 262'144;
constexpr std::size_t kMarksMax = 1'000;
/// Of containers and what they name.
constexpr std::size_t kHeldBytesMax = std::size_t{24} << 20U;

enum class Kind : std::uint8_t { none, no, yes, count, number, real, text, container };

/// Where the bytes of a value are, or which container it is. A container may be named again before
/// it is filled, even by itself. In eight bytes, for a long record has millions of values.
class Value {
   public:
    Value() = default;
    explicit Value(Kind kind, std::size_t place = 0, std::size_t size = 0)
        : bits_(static_cast<std::uint64_t>(kind) << 56U | std::uint64_t{place} << 28U | size) {}

    [[nodiscard]] Kind kind() const { return static_cast<Kind>(bits_ >> 56U); }
    [[nodiscard]] std::size_t place() const { return bits_ >> 28U & (kBytesMax - 1); }
    [[nodiscard]] std::size_t size() const { return bits_ & (kBytesMax - 1); }

   private:
    std::uint64_t bits_ = 0;  // Kind::none.
};
using Values = std::vector<Value>;

struct Container {
    bool is_dictionary = false;
    Values items;  ///< Of a dictionary: key, value, key, value, ...
};

class Reader {
   public:
    Reader(std::string_view bytes, Out& out) : bytes_(bytes), out_(out) {}

    Result<void> read() {
        while (complaint_.empty()) {
            const auto code = static_cast<unsigned char>(little_endian(take(1)));
            if (!complaint_.empty() || code == '.') {
                break;
            }
            execute(code);
        }
        const Value top = pop();
        if (complaint_.empty()) {
            pass(top, 0);
        }
        if (!complaint_.empty()) {
            return invalid_argument("it is no pickle of plain data: " + complaint_);
        }
        return {};
    }

   private:
    bool complain(const std::string& what) {
        if (complaint_.empty()) {
            complaint_ = what;
        }
        return false;
    }

    /// The next `size` bytes.
    Value take(std::uint64_t size, Kind kind = Kind::text) {
        if (size > bytes_.size() - at_) {
            complain("it ends in the middle of a value");
            return {};
        }
        const Value value(kind, at_, static_cast<std::size_t>(size));
        at_ += static_cast<std::size_t>(size);
        return value;
    }
    [[nodiscard]] std::string_view bytes_of(Value value) const {
        return bytes_.substr(value.place(), value.size());
    }
    [[nodiscard]] std::uint64_t little_endian(Value value) const {
        std::uint64_t number = 0;
        const std::string_view bytes = bytes_of(value);
        for (std::size_t i = bytes.size(); i > 0; --i) {
            number = number << 8U | static_cast<unsigned char>(bytes[i - 1]);
        }
        return number;
    }
    std::uint64_t length(std::size_t size) { return little_endian(take(size)); }

    void hold(std::size_t bytes) {
        held_ += bytes;
        if (held_ > kHeldBytesMax) {
            complain("it has too many values");
        }
    }
    void push(Value value) {
        if (stack_.size() == kStackMax) {
            complain("it has too many values");
            return;
        }
        stack_.push_back(value);
    }
    void push_container(bool is_dictionary, Values items) {
        constexpr std::size_t kOfAllocation = 16;
        hold(sizeof(Container) + kOfAllocation + items.size() * sizeof(Value));
        if (complaint_.empty()) {
            push(Value(Kind::container, containers_.size()));
            containers_.push_back({is_dictionary, std::move(items)});
        }
    }
    void push_long(std::uint64_t size) {
        if (size > sizeof(std::int64_t)) {
            complain("a number has more than 64 bits");
            return;
        }
        push(take(size, Kind::number));
    }
    Value pop() {
        if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size())) {
            complain("a value is missing");
            return {};
        }
        const Value value = stack_.back();
        stack_.pop_back();
        return value;
    }
    /// The values since the last mark.
    Values pop_to_mark() {
        if (marks_.empty()) {
            complain("a mark is missing");
            return {};
        }
        const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
        marks_.pop_back();
        Values items(first, stack_.end());
        stack_.erase(first, stack_.end());
        return items;
    }
    Values pop_some(std::size_t count) {
        Values items(count);
        for (std::size_t i = count; i > 0; --i) {
            items[i - 1] = pop();
        }
        return items;
    }
    void add(bool to_dictionary, const Values& items) {
        const Value top = stack_.empty() ? Value() : stack_.back();
        if (top.kind() != Kind::container ||
            containers_[top.place()].is_dictionary != to_dictionary) {
            complain("something is added to a value that is no such container");
        } else if (to_dictionary && items.size() % 2 != 0) {
            complain("a key has no value");
        } else {
            Values& all = containers_[top.place()].items;
            const std::size_t room = all.capacity();
            all.insert(all.end(), items.begin(), items.end());
            hold((all.capacity() - room) * sizeof(Value));
        }
    }
    void remember(std::uint64_t place) {
        if (stack_.empty()) {
            complain("a value is missing");
            return;
        }
        if (place >= memo_.size()) {
            hold(2 * sizeof(Value) *
                 (std::min<std::uint64_t>(place, kBytesMax) + 1 - memo_.size()));
            if (!complaint_.empty()) {
                return;
            }
            memo_.resize(place + 1);
        }
        memo_[place] = stack_.back();
    }
    void recall(std::uint64_t place) {
        if (place >= memo_.size()) {
            complain("it names a value that it does not have");
            return;
        }
        push(memo_[place]);
    }

    void execute(unsigned char code) {
        if (!execute_scalar(code) && !execute_container(code) && !execute_memo(code)) {
            complain("it has the instruction " + std::to_string(code) + " at byte " +
                     std::to_string(at_ - 1));
        }
    }
    bool execute_scalar(unsigned char code) {
        switch (code) {
            case 'N':
                return push(Value(Kind::none)), true;
            case 0x88:
                return push(Value(Kind::yes)), true;
            case 0x89:
                return push(Value(Kind::no)), true;
            case 'K':
                return push(take(1, Kind::count)), true;
            case 'M':
                return push(take(2, Kind::count)), true;
            case 'J':
                return push_long(4), true;
            case 0x8a:
                return push_long(length(1)), true;
            case 'G':
                return push(take(sizeof(double), Kind::real)), true;
            case 'X':
                return push(take(length(4), Kind::text)), true;
            case 0x8c:
                return push(take(length(1), Kind::text)), true;
            case 0x8d:
                return push(take(length(8), Kind::text)), true;
            default:
                return false;
        }
    }
    bool execute_container(unsigned char code) {
        switch (code) {
            case '(':
                if (marks_.size() == kMarksMax) {
                    complain("it has too many marks");
                } else {
                    marks_.push_back(stack_.size());
                }
                return true;
            case ']':
            case ')':
                return push_container(false, {}), true;
            case '}':
                return push_container(true, {}), true;
            case 'a':
                return add(false, pop_some(1)), true;
            case 'e':
                return add(false, pop_to_mark()), true;
            case 's':
                return add(true, pop_some(2)), true;
            case 'u':
                return add(true, pop_to_mark()), true;
            case 't':
                return push_container(false, pop_to_mark()), true;
            case 0x85:
            case 0x86:
            case 0x87:
                return push_container(false, pop_some(code - 0x84U)), true;
            default:
                return false;
        }
    }
    bool execute_memo(unsigned char code) {
        switch (code) {
            case 'q':
                return remember(length(1)), true;
            case 'r':
                return remember(length(4)), true;
            case 0x94:
                return remember(memo_.size()), true;
            case 'h':
                return recall(length(1)), true;
            case 'j':
                return recall(length(4)), true;
            case 0x80:  // The version.
                return static_cast<void>(take(1)), true;
            case 0x95:  // The length of what follows.
                return static_cast<void>(take(8)), true;
            default:
                return false;
        }
    }

    [[nodiscard]] std::int64_t number_of(Value value) const {
        std::uint64_t bits = little_endian(value);
        const std::uint64_t width = value.size() * 8;
        if (value.kind() == Kind::number && width > 0 && width < 64 && bits >> (width - 1) != 0) {
            bits |= ~std::uint64_t{0} << width;
        }
        return static_cast<std::int64_t>(bits);
    }
    [[nodiscard]] double real_of(Value value) const {
        std::uint64_t bits = 0;
        for (const char byte : bytes_of(value)) {  // The only big-endian number.
            bits = bits << 8U | static_cast<unsigned char>(byte);
        }
        return std::bit_cast<double>(bits);
    }

    bool pass(Value value, int depth) {
        if (depth > kDepthMax) {
            return complain("its values are too deep in each other");
        }
        switch (value.kind()) {
            case Kind::none:
                return out_.null();
            case Kind::no:
            case Kind::yes:
                return out_.boolean(value.kind() == Kind::yes);
            case Kind::count:
            case Kind::number:
                return out_.number_integer(number_of(value));
            case Kind::real:
                return out_.number_float(real_of(value), "");
            case Kind::text: {
                std::string text(bytes_of(value));
                return out_.string(text);
            }
            case Kind::container:
                break;
        }
        const Container& container = containers_[value.place()];
        return container.is_dictionary ? pass_dictionary(container.items, depth)
                                       : pass_list(container.items, depth);
    }
    bool pass_list(const Values& items, int depth) {
        if (!out_.start_array(items.size())) {
            return false;
        }
        for (const Value item : items) {
            if (!pass(item, depth + 1)) {
                return false;
            }
        }
        return out_.end_array();
    }
    bool pass_dictionary(const Values& items, int depth) {
        if (!out_.start_object(items.size() / 2)) {
            return false;
        }
        for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
            const Value key = items[i];
            const bool is_text = key.kind() == Kind::text;
            if (!is_text && key.kind() != Kind::count && key.kind() != Kind::number) {
                return complain("a key is neither a text nor a number");
            }
            std::string name =
                is_text ? std::string(bytes_of(key)) : std::to_string(number_of(key));
            if (!out_.key(name) || !pass(items[i + 1], depth + 1)) {
                return false;
            }
        }
        return out_.end_object();
    }

    const std::string_view bytes_;
    Out& out_;
    std::size_t at_ = 0;
    std::deque<Container> containers_;
    Values stack_;
    std::vector<std::size_t> marks_;  ///< Sizes of the stack.
    Values memo_;
    std::size_t held_ = 0;
    std::string complaint_;
};

}  // namespace

Result<void> read_pickle(std::string_view bytes, Out& out) {
    if (bytes.size() >= kBytesMax) {
        return invalid_argument("it has too many bytes");
    }
    return Reader(bytes, out).read();
}

}  // namespace regroup::agent
