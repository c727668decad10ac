// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/json_writer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include "rendezvous/base/printable.h"
#include "rendezvous/json/json_text.h"

namespace regroup::rendezvous {

namespace {

template <class Number>
void append_number(std::string& out, Number number) {
    std::array<char, 32> digits{};
    const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), number);
    out.append(digits.data(), end);
}

bool is_plain(char letter) {
    return letter >= ' ' && letter <= '~' && letter != '"' && letter != '\\';
}

}  // namespace

void JsonWriter::separate() {
    if (!out_.empty() && out_.back() != '{' && out_.back() != '[' && out_.back() != ':') {
        out_ += ',';
    }
}

void JsonWriter::open(char bracket) {
    separate();
    out_ += bracket;
}

void JsonWriter::key(std::string_view name) {
    separate();
    out_ += '"';
    out_ += name;
    out_ += "\":";
}

void JsonWriter::value(std::string_view text) {
    separate();
    if (std::ranges::all_of(text, is_plain)) {
        out_ += '"';
        out_ += text;
        out_ += '"';
    } else {
        out_ += printable_json(json_text(nlohmann::json(text)));
    }
}

void JsonWriter::value(bool flag) {
    separate();
    out_ += flag ? "true" : "false";
}

void JsonWriter::value(double number) {
    separate();
    if (std::isfinite(number)) {
        append_number(out_, number);
    } else {
        out_ += "null";
    }
}

void JsonWriter::integer(std::uint64_t number) {
    separate();
    append_number(out_, number);
}

void JsonWriter::integer(std::int64_t number) {
    separate();
    append_number(out_, number);
}

void JsonWriter::json(std::string_view text) {
    separate();
    out_ += text;
}

}  // namespace regroup::rendezvous
