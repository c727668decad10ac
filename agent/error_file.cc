// SPDX-License-Identifier: Apache-2.0
#include "agent/error_file.h"

#include <cerrno>
#include <ctime>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

namespace regroup::agent {

namespace {

using nlohmann::json;

// A traceback takes a few kilobytes; more than this is not read.
constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;

std::optional<std::string> contents_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        return std::nullopt;
    }
    std::string text(kFileBytesMax, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    return text;
}

std::string text_of(const json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

// The traceback if there is one, else the message; nothing if the form is unknown.
std::optional<std::string> message_of(const json& content) {
    const auto message = content.find("message");
    if (!content.is_object() || message == content.end()) {
        return std::nullopt;
    }
    if (message->is_string()) {
        return message->get<std::string>();
    }
    if (!message->is_object()) {
        return std::nullopt;
    }
    const auto extra = message->find("extraInfo");
    if (extra != message->end() && extra->is_object() && extra->contains("py_callstack")) {
        return text_of((*extra)["py_callstack"]);
    }
    return message->contains("message") ? text_of((*message)["message"]) : message->dump();
}

json described(const std::string& message) {
    return {{"message",
             {{"message", message},
              {"extraInfo",
               {{"py_callstack", ""}, {"timestamp", std::to_string(std::time(nullptr))}}}}}};
}

Result<void> write_file(const std::string& path, const json& content) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << content.dump(-1, ' ', false, json::error_handler_t::replace);
    file.close();
    return file ? Result<void>() : system_failure("cannot write the error file " + path, errno);
}

}  // namespace

void read_error_file(const std::string& path, rendezvous::WorkerFailure& failure) {
    const std::optional<std::string> text =
        path.empty() ? std::optional<std::string>() : contents_of(path);
    if (!text) {
        return;
    }
    failure.error_file = path;
    const json content = json::parse(*text, nullptr, false);
    const std::optional<std::string> message =
        content.is_discarded() ? std::nullopt : message_of(content);
    failure.error_message =
        message
            ? *message
            : "(its error file is not understood: " +
                  std::string(content.is_discarded() ? "it is no JSON" : "it has no message") + ")";
}

Result<void> write_parent_error_file(const std::string& path,
                                     const rendezvous::WorkerFailure& failure) {
    json content;
    if (const std::optional<std::string> text = contents_of(failure.error_file)) {
        content = json::parse(*text, nullptr, false);
    }
    if (content.is_discarded() || !content.is_object() || !content.contains("message")) {
        content = described(rendezvous::describe(failure) +
                            (failure.error_message.empty() ? "" : ": " + failure.error_message));
    }
    if (content["message"].is_object()) {
        content["message"]["errorCode"] = failure.signal != 0 ? -failure.signal : failure.exit_code;
    }
    return write_file(path, content);
}

Result<void> write_own_error_file(const std::string& path, const std::string& message) {
    return write_file(path, described(message));
}

}  // namespace regroup::agent
