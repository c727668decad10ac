// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/http/pages.h"

#include <string_view>

namespace regroup::http {

namespace {

/// A string of JSON.
std::string quoted(const std::string& text) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string json = "\"";
    for (const char letter : text) {
        const auto byte = static_cast<unsigned char>(letter);
        if (letter == '"' || letter == '\\') {
            json += '\\';
            json += letter;
        } else if (byte < 0x20 || byte == 0x7F) {
            json += "\\u00";
            json += kDigits[byte >> 4U];
            json += kDigits[byte & 0xFU];
        } else {
            json += letter;
        }
    }
    return json + "\"";
}

}  // namespace

std::string event_text(std::string_view name, std::string_view data) {
    std::string text = "event: " + std::string(name) + "\n";
    for (;;) {
        const std::size_t end = std::min(data.find('\n'), data.size());
        text += "data: ";
        text += data.substr(0, end);
        text += '\n';
        if (end == data.size()) {
            return text + "\n";
        }
        data.remove_prefix(end + 1);
    }
}

Answer sentence(unsigned status, std::string text) {
    Answer answer;
    answer.status = status;
    answer.body = std::make_shared<const std::string>(std::move(text) + "\n");
    return answer;
}

Answer error_json(unsigned status, const std::string& text) {
    Answer answer;
    answer.status = status;
    answer.content_type = "application/json";
    answer.body = std::make_shared<const std::string>("{\"error\":" + quoted(text) + "}\n");
    return answer;
}

}  // namespace regroup::http
