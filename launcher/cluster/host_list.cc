// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/host_list.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "rendezvous/base/text.h"

namespace regroup::launcher {
namespace {

constexpr std::string_view kSeparators = ", \t\n\r";
constexpr std::size_t kRangeDigitsMax = 18;  // Fits 64 bits.
constexpr std::size_t kQuotedMax = 40;

using Number = std::uint64_t;

/// A bracket with the text before it.
struct Part {
    std::string_view text;
    std::vector<std::string> numbers;
};

/// "text[ranges]text[ranges]text".
struct Item {
    std::vector<Part> parts;
    std::string_view rest;
    Number count = 1;  ///< Hosts; at most kHostsMax.
};

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

std::optional<Number> parse_digits(std::string_view text) {
    if (text.empty() || text.size() > kRangeDigitsMax || !std::ranges::all_of(text, is_digit)) {
        return std::nullopt;
    }
    return parse_number<Number>(text);
}

std::string padded(Number number, std::size_t width) {
    const std::string digits = std::to_string(number);
    return std::string(width - std::min(width, digits.size()), '0') + digits;
}

class Expansion {
   public:
    explicit Expansion(std::string_view list) : list_(list) {}

    Result<std::vector<std::string>> run() {
        std::size_t at = 0;
        while ((at = list_.find_first_not_of(kSeparators, at)) != list_.npos) {
            const Result<std::size_t> end = take_item(at);
            if (!end) {
                return end.error();
            }
            at = *end;
        }
        if (names_.empty()) {
            return Failure(Errc::invalid_argument, "the host list is empty");
        }
        return std::move(names_);
    }

   private:
    [[nodiscard]] static Failure wrong(std::size_t at, const std::string& what) {
        return {Errc::invalid_argument,
                "host list, character " + std::to_string(at + 1) + ": " + what};
    }

    [[nodiscard]] static std::string quoted(std::string_view text) {
        return "\"" + std::string(text.substr(0, kQuotedMax)) +
               (text.size() > kQuotedMax ? "..." : "") + "\"";
    }

    /// Appends the hosts of the item at `at`. Returns its end.
    Result<std::size_t> take_item(std::size_t at) {
        const std::size_t begin = at;
        Item item;
        std::size_t text = at;
        for (; at < list_.size() && kSeparators.find(list_[at]) == kSeparators.npos; ++at) {
            const char c = list_[at];
            if (c == ']') {
                return wrong(at, "this ] closes no bracket");
            }
            if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
                return wrong(at, "a control character");
            }
            if (c != '[') {
                continue;
            }
            const std::size_t close = list_.find_first_of("[]", at + 1);
            if (close == list_.npos || list_[close] == '[') {
                return wrong(at, "this [ is not closed");
            }
            Part part{list_.substr(text, at - text), {}};
            if (const Result<void> read = read_ranges(at + 1, close, item.count, part); !read) {
                return read.error();
            }
            item.count *= part.numbers.size();
            item.parts.push_back(std::move(part));
            at = close;
            text = close + 1;
        }
        item.rest = list_.substr(text, at - text);
        if (const Result<void> expanded = expand(item, begin); !expanded) {
            return expanded.error();
        }
        return at;
    }

    /// `times`: how many hosts each number makes.
    Result<void> read_ranges(std::size_t at, std::size_t close, Number times, Part& part) {
        while (true) {
            const std::size_t end = std::min(list_.find(',', at), close);
            const std::string_view text = list_.substr(at, end - at);
            const std::size_t dash = std::min(text.find('-'), text.size());
            const auto first = parse_digits(text.substr(0, dash));
            const auto last = dash == text.size() ? first : parse_digits(text.substr(dash + 1));
            if (!first || !last) {
                return wrong(at, quoted(text) + " is no number, and no range such as 1-4");
            }
            if (*first > *last) {
                return wrong(at, "the range " + quoted(text) + " ends before it begins");
            }
            if (*last - *first >= (kHostsMax - names_.size()) / times - part.numbers.size()) {
                return wrong(at, "with " + quoted(text) + " the list has more than " +
                                     std::to_string(kHostsMax) + " hosts");
            }
            for (Number number = *first; number <= *last; ++number) {
                part.numbers.push_back(padded(number, dash));
            }
            if (end == close) {
                return {};
            }
            at = end + 1;
        }
    }

    Result<void> expand(const Item& item, std::size_t at) {
        if (names_.size() + item.count > kHostsMax) {
            return wrong(at, "the list has more than " + std::to_string(kHostsMax) + " hosts");
        }
        for (Number index = 0; index < item.count; ++index) {
            names_.push_back(name_of(item, index));
            if (names_.back().size() > kHostNameMax) {
                return wrong(at, "a name has more than " + std::to_string(kHostNameMax) + " bytes");
            }
        }
        return {};
    }

    /// The `index`-th name. Slurm counts the last bracket fastest, then the first, the second and
    /// so on.
    [[nodiscard]] static std::string name_of(const Item& item, Number index) {
        const std::size_t count = item.parts.size();
        std::vector<Number> places(count);
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t part = (i + count - 1) % count;
            places[part] = index % item.parts[part].numbers.size();
            index /= item.parts[part].numbers.size();
        }
        std::string name;
        for (std::size_t i = 0; i < count; ++i) {
            name.append(item.parts[i].text).append(item.parts[i].numbers[places[i]]);
        }
        return name.append(item.rest);
    }

    const std::string_view list_;
    std::vector<std::string> names_;
};

}  // namespace

Result<std::vector<std::string>> expand_host_list(std::string_view list) {
    return Expansion(list).run();
}

}  // namespace regroup::launcher
