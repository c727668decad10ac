// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/http/assets.h"

#include <functional>
#include <map>
#include <string>

#include "rendezvous/http/embedded_files.h"

namespace regroup::http {

namespace {

std::string_view type_of(std::string_view path) {
    return path.ends_with(".html")  ? "text/html; charset=utf-8"
           : path.ends_with(".js")  ? "text/javascript; charset=utf-8"
           : path.ends_with(".css") ? "text/css; charset=utf-8"
                                    : "image/svg+xml";
}

}  // namespace

const Answer* asset(std::string_view path) {
    static const std::map<std::string, Answer, std::less<>> answers = [] {
        std::map<std::string, Answer, std::less<>> made;
        for (const EmbeddedFile& file : embedded_files()) {
            const std::string bytes(reinterpret_cast<const char*>(file.bytes), file.size);
            Answer answer;
            answer.content_type = type_of(file.path);
            // It tells versions of a file apart, and protects nothing.
            answer.etag = "\"" + std::to_string(std::hash<std::string>()(bytes)) + "\"";
            answer.body = std::make_shared<const std::string>(bytes);
            made.emplace(file.path, std::move(answer));
        }
        return made;
    }();
    const auto found = answers.find(path == "/" ? "/index.html" : path);
    return found == answers.end() ? nullptr : &found->second;
}

}  // namespace regroup::http
