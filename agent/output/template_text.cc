// SPDX-License-Identifier: Apache-2.0
#include "agent/output/template_text.h"

#include <algorithm>

namespace regroup::agent {

namespace {

bool begins_name(char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool continues_name(char c) {
    return begins_name(c) || (c >= '0' && c <= '9');
}

std::size_t name_end(const std::string& text, std::size_t begin) {
    if (begin >= text.size() || !begins_name(text[begin])) {
        return begin;
    }
    return static_cast<std::size_t>(
        std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(),
                         continues_name) -
        text.begin());
}

}  // namespace

std::string substitute(const std::string& text, const std::map<std::string, std::string>& values) {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
        if (text[at] != '$') {
            result += text[at++];
            continue;
        }
        if (at + 1 < text.size() && text[at + 1] == '$') {
            result += '$';
            at += 2;
            continue;
        }
        const bool braced = at + 1 < text.size() && text[at + 1] == '{';
        const std::size_t begin = at + (braced ? 2 : 1);
        const std::size_t end = name_end(text, begin);
        const bool closed = !braced || (end < text.size() && text[end] == '}');
        const auto value = values.find(text.substr(begin, end - begin));
        if (end == begin || !closed || value == values.end()) {
            result += text[at++];
            continue;
        }
        result += value->second;
        at = end + (braced ? 1 : 0);
    }
    return result;
}

std::string substitute_braced(const std::string& text,
                              const std::map<std::string, std::string>& values) {
    std::string result = text;
    for (const auto& [name, value] : values) {
        const std::string pattern = "${" + name + "}";
        for (std::size_t at = result.find(pattern); at != std::string::npos;
             at = result.find(pattern, at + value.size())) {
            result.replace(at, pattern.size(), value);
        }
    }
    return result;
}

}  // namespace regroup::agent
