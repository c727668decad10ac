// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace regroup::http {

/// The fields of a request, before it is known whether it may.
struct RequestHead {
    enum class Method : std::uint8_t { get, head, post, other };

    Method method = Method::other;
    std::string target;
    std::string host;
    bool has_one_host = false;
    std::string origin;
    bool has_origin = false;
    std::string fetch_site;  ///< The fields Sec-Fetch-*, which browsers send.
    std::string fetch_mode;
    std::string fetch_dest;
    std::string authorization;
    std::string content_type;
    std::string accept;
    std::string if_none_match;
    bool keep_alive = false;
    bool expects_continue = false;
};

/// Reads requests from bytes. It holds at most one request and what it was fed beyond it.
class RequestReader {
   public:
    enum class State : std::uint8_t {
        idle,  ///< No byte of the next request.
        head,
        body,  ///< The head is complete.
        complete,
        failed,
    };

    RequestReader(std::size_t head_bytes_max, std::size_t body_bytes_max);
    ~RequestReader();
    RequestReader(const RequestReader&) = delete;
    RequestReader& operator=(const RequestReader&) = delete;

    void feed(std::string_view bytes);
    [[nodiscard]] State state() const noexcept { return state_; }
    /// From the state `body` on.
    [[nodiscard]] RequestHead head() const;
    /// In the state `complete`.
    [[nodiscard]] const std::string& body() const;
    /// In the state `failed`: 400, 413 or 431, and one sentence.
    [[nodiscard]] unsigned status() const noexcept { return status_; }
    [[nodiscard]] const std::string& why() const noexcept { return why_; }

    /// Forgets the complete request, and begins with the next.
    void next();

   private:
    struct Parser;

    void parse();
    void begin();

    std::size_t head_bytes_max_;
    std::size_t body_bytes_max_;
    std::unique_ptr<Parser> parser_;
    std::string rest_;
    State state_ = State::idle;
    unsigned status_ = 400;
    std::string why_;
};

/// The path of a target without percent escapes, and its query. Nothing if it is not absolute, has
/// a wrong escape, a byte 0, or a segment "..".
struct Target {
    std::string path;
    std::map<std::string, std::string> query;
};
[[nodiscard]] std::optional<Target> parse_target(std::string_view target);

}  // namespace regroup::http
