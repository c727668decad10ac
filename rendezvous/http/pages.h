// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "rendezvous/security/credentials.h"

namespace regroup::http {

/// Fields of answers: the endpoint of the daemon that leads, if it is known; when the job began, in
/// milliseconds since 1970.
inline constexpr const char* kLeaderField = "Regroup-Leader";
inline constexpr const char* kBeganField = "Regroup-Job-Began";

/// A request that the door has let through.
struct Request {
    enum class Method : std::uint8_t { get, post };  ///< The door turns HEAD into `get`.

    Method method = Method::get;
    std::string path;  ///< Without percent escapes; "/api/v1/jobs/nightly run".
    std::map<std::string, std::string> query{};
    std::string accept{};    ///< The field Accept; may be empty.
    std::string if_match{};  ///< The field If-None-Match; may be empty.
    std::string body{};      ///< Of a `post`: JSON, not parsed yet.
    /// The peer. It may read, and if the method is `post`, its role may operate. If its scope names
    /// a job, it must see no other.
    security::Peer peer{};
    std::string address{};  ///< "10.0.0.4:41234", for the log.
};

/// A client that stays, and gets what is new. On the io_context's one thread.
class Viewer {
   public:
    Viewer() = default;
    virtual ~Viewer() = default;
    Viewer(const Viewer&) = delete;
    Viewer& operator=(const Viewer&) = delete;

    [[nodiscard]] virtual bool is_open() const = 0;
    /// Queues an event. A viewer that does not read them is disconnected.
    virtual void push(std::shared_ptr<const std::string> event) = 0;
    /// Queues a whole state. It replaces the one that still waits, so that a slow viewer gets fewer
    /// of them.
    virtual void show(std::shared_ptr<const std::string> state) = 0;
    /// Disconnects it: the client connects again.
    virtual void close() = 0;
    /// Disconnects it once all that is queued has been sent.
    virtual void finish() = 0;
};

/// The text of a server-sent event. `data` may have several lines.
[[nodiscard]] std::string event_text(std::string_view name, std::string_view data);

struct Answer {
    unsigned status = 200;
    std::string content_type = "text/plain; charset=utf-8";
    std::shared_ptr<const std::string> body{};  ///< Null: none. Many answers may share one.
    /// Unless empty, with its quotes. The browser may then keep the body, and asks whether it has
    /// changed; otherwise it must not keep it.
    std::string etag{};
    /// Further fields of the head, such as Allow for the status 405.
    std::map<std::string, std::string> fields{};
    /// If set, this is a stream of events instead of a body. The door calls it with the viewer when
    /// the answer has begun. It keeps the viewer until the connection ends; others should hold it
    /// weakly.
    std::function<void(const std::shared_ptr<Viewer>& viewer)> stream{};
    /// Goes on such a stream while there is nothing else.
    std::string sign_of_life = ": still here\n\n";
};

/// An answer of one sentence, printable whatever the request said. Its line break is added.
[[nodiscard]] Answer sentence(unsigned status, std::string_view text);
/// The same as JSON, for programs: {"error":"..."}.
[[nodiscard]] Answer error_json(unsigned status, const std::string& text);

/// The content behind the door.
class Pages {
   public:
    /// To be called once, at once or later, on the io_context's thread.
    using Reply = std::function<void(Answer answer)>;

    Pages() = default;
    virtual ~Pages() = default;
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    /// True if everybody may get `path`: it must say nothing about jobs.
    [[nodiscard]] virtual bool is_public(const std::string& path) const = 0;
    /// Takes a few milliseconds at most, since all jobs wait meanwhile.
    virtual void answer(const Request& request, Reply reply) = 0;
};

}  // namespace regroup::http
