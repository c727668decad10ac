// SPDX-License-Identifier: Apache-2.0
#include "agent/workers/error_file.h"

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "rendezvous/base/time_text.h"
#include "rendezvous/files/own_file.h"
#include "rendezvous/files/unique_fd.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/text/describe.h"

namespace regroup::agent {

namespace {

using nlohmann::json;

// Limits for reading and reporting. A traceback takes a few kilobytes.
constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;
constexpr std::size_t kMessageBytesMax = std::size_t{16} << 10;

// Reads regular files only.
std::optional<std::string> contents_of(const std::string& path) {
    const Result<UniqueFd> file = files::open_own(path, O_RDONLY);
    struct stat status{};
    if (!file || ::fstat(file->get(), &status) != 0 || !S_ISREG(status.st_mode)) {
        return std::nullopt;
    }
    const Result<std::string> text = files::read_all(file->get(), kFileBytesMax);
    return text ? *text : "";
}

std::string text_of(const json& value) {
    return value.is_string() ? value.get<std::string>() : json_text(value);
}

const json& extra_info(const json& content) {
    return field_of(field_of(content, "message"), "extraInfo");
}

// The traceback if there is one, else the message; nothing if the form is unknown.
std::optional<std::string> message_of(const json& content) {
    const json& message = field_of(content, "message");
    if (!message.is_string() && !message.is_object()) {
        return std::nullopt;
    }
    const json& traceback = field_of(extra_info(content), "py_callstack");
    // NOLINTNEXTLINE(readability-container-size-empty): a text is no container to json.
    if (!traceback.is_null() && traceback != "") {
        return text_of(traceback);
    }
    const json& text = field_of(message, "message");
    return text_of(text.is_null() ? message : text);
}

// The time of the failure in the file: seconds of the epoch, as a number or as text.
std::optional<std::string> time_of(const json& content) {
    const json& extra = extra_info(content);
    const json& stamp = field_of(extra.is_null() ? content : extra, "timestamp");
    const std::time_t seconds = std::atoll(text_of(stamp).c_str());
    std::string text = seconds > 0 ? local_time_text(seconds) : "";
    return text.empty() ? std::nullopt : std::optional(std::move(text));
}

// The last line of a traceback has the error.
std::string end_of(const std::string& text) {
    return text.size() <= kMessageBytesMax ? text : text.substr(text.size() - kMessageBytesMax);
}

json described(const std::string& message) {
    return {{"message",
             {{"message", message},
              {"extraInfo", {{"timestamp", std::to_string(std::time(nullptr))}}}}}};
}

Result<void> write_file(const std::string& path, const json& content) {
    const std::string whole = json_text(content);
    const std::string what = "cannot write the error file " + path;
    const Result<UniqueFd> file = files::open_own(path, O_WRONLY | O_CREAT | O_TRUNC);
    if (!file) {
        return Failure(file.error().code, what + ": " + file.error().detail);
    }
    return files::write_all(file->get(), whole) ? Result<void>() : system_failure(what, errno);
}

}  // namespace

void read_error_file(const std::string& path, rendezvous::WorkerFailure& failure) {
    const std::optional<std::string> text =
        path.empty() ? std::optional<std::string>() : contents_of(path);
    if (!text) {
        return;
    }
    failure.error_file = path;
    const json content = parse_json(*text);
    if (const std::optional<std::string> message = message_of(content)) {
        failure.error_message = end_of(*message);
        failure.time = time_of(content).value_or(failure.time);
    } else {
        failure.error_message = std::string("(its error file is not understood: ") +
                                (content.is_discarded() ? "it is no JSON)" : "it has no message)");
    }
}

Result<void> write_parent_error_file(const std::string& path,
                                     const rendezvous::WorkerFailure& failure) {
    json content;
    if (const std::optional<std::string> text = contents_of(failure.error_file)) {
        content = parse_json(*text);
    }
    if (!message_of(content)) {
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
