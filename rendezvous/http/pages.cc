// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/http/pages.h"

#include <string_view>

#include "rendezvous/base/printable.h"

namespace regroup::http {

namespace {

/// A string of JSON. The bytes of a request may be no UTF-8.
std::string quoted(const std::string& text) {
    std::string json = "\"";
    for (const char letter : printable(text)) {
        if (letter == '\t') {
            json += "\\t";
            continue;
        }
        if (letter == '"' || letter == '\\') {
            json += '\\';
        }
        json += letter;
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

Answer sentence(unsigned status, std::string_view text) {
    Answer answer;
    answer.status = status;
    answer.body = std::make_shared<const std::string>(printable(text) + "\n");
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
