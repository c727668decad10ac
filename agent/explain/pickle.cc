// SPDX-License-Identifier: Apache-2.0
#include "agent/explain/pickle.h"

#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace regroup::agent {
namespace {

using nlohmann::json;

constexpr int kDepthMax = 64;
/// For each of values, marks, and places on the stack.
constexpr std::size_t kReadMax = 4'000'000;

struct Node;
/// A container may be named again before it is filled, even by itself. So the reader owns all
/// values, and they point at each other.
using Value = Node*;
using Items = std::vector<Value>;
struct Dictionary {
    Items keys_and_values;
};
struct Node {
    std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Items, Dictionary> is;
};

Failure broken(const std::string& what) {
    return {Errc::invalid_argument, "it is no pickle of plain data: " + what};
}

class Reader {
   public:
    Reader(std::string_view bytes, std::size_t values_max)
        : bytes_(bytes), values_max_(values_max) {}

    Result<json> read() {
        while (complaint_.empty()) {
            const std::uint64_t code = number(1);
            if (!complaint_.empty() || code == '.') {
                break;
            }
            take(static_cast<unsigned char>(code));
        }
        const Value top = pop();
        if (!complaint_.empty()) {
            return broken(complaint_);
        }
        json result = converted(*top, 0);
        return complaint_.empty() ? Result<json>(std::move(result)) : broken(complaint_);
    }

   private:
    void complain(const std::string& what) {
        if (complaint_.empty()) {
            complaint_ = what;
        }
    }

    /// Little-endian, as all numbers of this format.
    std::uint64_t number(std::size_t size) {
        std::uint64_t value = 0;
        const std::string_view part = text(size);
        for (std::size_t i = part.size(); i > 0; --i) {
            value = value << 8U | static_cast<unsigned char>(part[i - 1]);
        }
        return value;
    }
    std::string_view text(std::uint64_t size) {
        if (size > bytes_.size() - at_) {
            complain("it ends in the middle of a value");
            return {};
        }
        const std::string_view part = bytes_.substr(at_, static_cast<std::size_t>(size));
        at_ += part.size();
        return part;
    }

    template <class T>
    void push(T value) {
        if (stack_.size() >= kReadMax || nodes_.size() >= kReadMax) {
            return complain("it has too many values");
        }
        stack_.push_back(&nodes_.emplace_back(Node{std::move(value)}));
    }
    Value pop() {
        if (stack_.empty() || (!marks_.empty() && marks_.back() == stack_.size())) {
            complain("a value is missing");
            return &nodes_.emplace_back(Node{nullptr});
        }
        const Value value = stack_.back();
        stack_.pop_back();
        return value;
    }
    /// The values since the last mark.
    Items pop_to_mark() {
        if (marks_.empty()) {
            complain("a mark is missing");
            return {};
        }
        const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
        marks_.pop_back();
        Items items(first, stack_.end());
        stack_.erase(first, stack_.end());
        return items;
    }
    template <class T>
    Items* top_items() {
        T* const top = stack_.empty() ? nullptr : std::get_if<T>(&stack_.back()->is);
        if (top == nullptr) {
            complain("something is added to a value that is no container");
            return nullptr;
        }
        if constexpr (std::is_same_v<T, Dictionary>) {
            return &top->keys_and_values;
        } else {
            return top;
        }
    }
    template <class T>
    void add(const Items& items) {
        if (std::is_same_v<T, Dictionary> && items.size() % 2 != 0) {
            complain("a key has no value");
        } else if (Items* const all = top_items<T>()) {
            all->insert(all->end(), items.begin(), items.end());
        }
    }
    void push_tuple(std::size_t size) {
        Items items(size);
        for (std::size_t i = size; i > 0; --i) {
            items[i - 1] = pop();
        }
        push(std::move(items));
    }
    void push_long(std::uint64_t size) {
        if (size > sizeof(std::int64_t)) {
            return complain("a number has more than 64 bits");
        }
        const auto bits = static_cast<unsigned>(size) * 8;
        std::uint64_t value = number(static_cast<std::size_t>(size));
        if (bits > 0 && bits < 64 && (value >> (bits - 1)) != 0) {
            value |= ~std::uint64_t{0} << bits;
        }
        push(static_cast<std::int64_t>(value));
    }
    void push_double() {
        std::uint64_t value = 0;
        for (const char byte : text(sizeof value)) {  // The only big-endian number.
            value = value << 8U | static_cast<unsigned char>(byte);
        }
        push(std::bit_cast<double>(value));
    }
    void remember(std::uint64_t place) {
        if (stack_.empty()) {
            return complain("a value is missing");
        }
        memo_[place] = stack_.back();
    }
    void recall(std::uint64_t place) {
        const auto found = memo_.find(place);
        if (found == memo_.end() || stack_.size() >= kReadMax) {
            return complain("it names a value that it does not have");
        }
        stack_.push_back(found->second);
    }

    void take(unsigned char code) {
        if (!take_scalar(code) && !take_container(code) && !take_memo(code)) {
            complain("it has the instruction " + std::to_string(code) + " at byte " +
                     std::to_string(at_ - 1));
        }
    }
    bool take_scalar(unsigned char code) {
        switch (code) {
            case 'N':
                return push(nullptr), true;
            case 0x88:
            case 0x89:
                return push(code == 0x88), true;
            case 'K':
                return push(static_cast<std::int64_t>(number(1))), true;
            case 'M':
                return push(static_cast<std::int64_t>(number(2))), true;
            case 'J':
                return push_long(4), true;
            case 0x8a:
                return push_long(number(1)), true;
            case 'G':
                return push_double(), true;
            case 'X':
                return push(std::string(text(number(4)))), true;
            case 0x8c:
                return push(std::string(text(number(1)))), true;
            case 0x8d:
                return push(std::string(text(number(8)))), true;
            default:
                return false;
        }
    }
    bool take_container(unsigned char code) {
        switch (code) {
            case '(':
                if (marks_.size() >= kReadMax) {
                    complain("it has too many values");
                }
                return marks_.push_back(stack_.size()), true;
            case ']':
            case ')':
                return push(Items()), true;
            case '}':
                return push(Dictionary()), true;
            case 'a': {
                const Value value = pop();
                return add<Items>({value}), true;
            }
            case 'e':
                return add<Items>(pop_to_mark()), true;
            case 's': {
                const Value value = pop();
                const Value key = pop();
                return add<Dictionary>({key, value}), true;
            }
            case 'u':
                return add<Dictionary>(pop_to_mark()), true;
            case 't':
                return push(pop_to_mark()), true;
            case 0x85:
            case 0x86:
            case 0x87:
                return push_tuple(code - 0x84U), true;
            default:
                return false;
        }
    }
    bool take_memo(unsigned char code) {
        switch (code) {
            case 'q':
                return remember(number(1)), true;
            case 'r':
                return remember(number(4)), true;
            case 0x94:
                return remember(memo_.size()), true;
            case 'h':
                return recall(number(1)), true;
            case 'j':
                return recall(number(4)), true;
            case 0x80:  // The version.
                return static_cast<void>(number(1)), true;
            case 0x95:  // The length of what follows.
                return static_cast<void>(number(8)), true;
            default:
                return false;
        }
    }

    json converted(const Node& node, int depth) {
        if (depth > kDepthMax || ++converted_ > values_max_) {
            complain("it is too deep or has too many values");
            return nullptr;
        }
        if (const auto* items = std::get_if<Items>(&node.is)) {
            json list = json::array();
            for (std::size_t i = 0; i < items->size() && complaint_.empty(); ++i) {
                list.push_back(converted(*(*items)[i], depth + 1));
            }
            return list;
        }
        if (const auto* dictionary = std::get_if<Dictionary>(&node.is)) {
            return object_of(dictionary->keys_and_values, depth);
        }
        return std::visit(
            [](const auto& value) -> json {
                using T = std::decay_t<decltype(value)>;
                if constexpr (std::is_same_v<T, Items> || std::is_same_v<T, Dictionary>) {
                    return nullptr;
                } else {
                    return value;
                }
            },
            node.is);
    }
    json object_of(const Items& pairs, int depth) {
        json object = json::object();
        for (std::size_t i = 0; i + 1 < pairs.size() && complaint_.empty(); i += 2) {
            const auto* name = std::get_if<std::string>(&pairs[i]->is);
            const auto* number = std::get_if<std::int64_t>(&pairs[i]->is);
            if (name == nullptr && number == nullptr) {
                complain("a key is neither a text nor a number");
                break;
            }
            object[name != nullptr ? *name : std::to_string(*number)] =
                converted(*pairs[i + 1], depth + 1);
        }
        return object;
    }

    std::string_view bytes_;
    std::size_t values_max_;
    std::size_t at_ = 0;
    std::deque<Node> nodes_;
    std::vector<Value> stack_;
    std::vector<std::size_t> marks_;  ///< Sizes of the stack.
    std::map<std::uint64_t, Value> memo_;
    std::size_t converted_ = 0;
    std::string complaint_;
};

}  // namespace

Result<json> read_pickle(std::string_view bytes, std::size_t values_max) {
    return Reader(bytes, values_max).read();
}

}  // namespace regroup::agent
