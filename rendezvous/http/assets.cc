// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/http/assets.h"

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "rendezvous/http/embedded_files.h"

namespace regroup::http {

namespace {

std::string_view type_of(std::string_view path) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kTypes{{
        {".html", "text/html; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".mjs", "text/javascript; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".json", "application/json"},
        {".svg", "image/svg+xml"},
        {".png", "image/png"},
        {".txt", "text/plain; charset=utf-8"},
    }};
    for (const auto& [ending, type] : kTypes) {
        if (path.ends_with(ending)) {
            return type;
        }
    }
    return "application/octet-stream";
}

/// FNV-1a. It tells versions of a file apart, and protects nothing.
std::string tag_of(std::string_view bytes) {
    std::uint64_t hash = 0xcbf29ce484222325U;
    for (const char byte : bytes) {
        hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
    }
    return "\"" + std::to_string(hash) + "\"";
}

}  // namespace

const Answer* asset(std::string_view path) {
    static const std::map<std::string, Answer, std::less<>> answers = [] {
        std::map<std::string, Answer, std::less<>> made;
        for (const EmbeddedFile& file : embedded_files()) {
            const std::string bytes(reinterpret_cast<const char*>(file.bytes), file.size);
            Answer answer;
            answer.content_type = type_of(file.path);
            answer.etag = tag_of(bytes);
            answer.body = std::make_shared<const std::string>(bytes);
            made.emplace(file.path, std::move(answer));
        }
        return made;
    }();
    const auto found = answers.find(path == "/" ? "/index.html" : path);
    return found == answers.end() ? nullptr : &found->second;
}

}  // namespace regroup::http
