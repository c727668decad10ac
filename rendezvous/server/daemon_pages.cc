// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/daemon_pages.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <boost/asio/post.hpp>
#include <nlohmann/json.hpp>

#include "rendezvous/base/printable.h"
#include "rendezvous/http/assets.h"
#include "rendezvous/json/json_fields.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/protocol/text.h"
#include "rendezvous/view/job_view.h"
#include "rendezvous/view/metrics_text.h"
#include "rendezvous/view/trace_json.h"

namespace regroup::rendezvous {

namespace {

using http::Answer;
using http::error_json;
using http::Request;
using nlohmann::json;

constexpr std::string_view kJobs = "/api/v1/jobs";
constexpr std::string_view kJson = "application/json";
// Times change also while nothing happens.
constexpr Duration kShowInterval = std::chrono::seconds(1);
constexpr std::size_t kTextsBytesMax = std::size_t{32} << 20U;
// Others wait meanwhile. `regroup trace` draws more, by itself.
constexpr TraceLimits kTraceLimits{4'000, 8'000};
constexpr std::size_t kWordsBytesMax = 1024;  // Of a node's name or a reason.

Answer text_answer(std::string_view type, std::shared_ptr<const std::string> text) {
    Answer answer;
    answer.content_type = type;
    answer.body = std::move(text);
    return answer;
}

/// A path below kJobs: "/JOB" or "/JOB/PART".
struct JobPath {
    std::string job;
    std::string part;
};

/// Nothing if this part of a job is no action.
std::optional<Operate::Action> action_of(std::string_view part) {
    for (const Operate::Action action :
         {Operate::Action::drain, Operate::Action::release, Operate::Action::stop}) {
        if (part == to_string(action)) {
            return action;
        }
    }
    return std::nullopt;
}

/// Nothing if `path` is not below kJobs. A job may have slashes in its name.
std::optional<JobPath> job_path(const std::string& path) {
    if (!path.starts_with(kJobs) || path.size() < kJobs.size() + 2 || path[kJobs.size()] != '/') {
        return std::nullopt;
    }
    const std::string rest = path.substr(kJobs.size() + 1);
    const std::size_t slash = rest.rfind('/');
    const std::string part = slash == rest.npos ? "" : rest.substr(slash + 1);
    const bool is_part = part == "events" || part == "trace" || action_of(part);
    return is_part ? JobPath{rest.substr(0, slash), part} : JobPath{rest, ""};
}

/// The job that the request may see: empty for all. Nothing if it asks for another.
std::optional<std::string> visible(const Request& request, const std::string& job) {
    const std::string& only = request.peer.scope.job;
    if (only.empty()) {
        return job;
    }
    return job.empty() || job == only ? std::optional(only) : std::nullopt;
}

/// A parameter of the request; empty if it has none of this name.
std::string parameter(const Request& request, const char* name) {
    const auto found = request.query.find(name);
    return found == request.query.end() ? "" : found->second;
}

std::int64_t number_of(const Request& request, const char* name) {
    const std::string text = parameter(request, name);
    std::int64_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return std::max<std::int64_t>(number, 0);
}

/// The events are to have no lists of nodes.
bool wants_no_nodes(const Request& request) {
    return parameter(request, "nodes") == "0";
}

Answer no_such_job(const std::string& job) {
    return error_json(404, "there is no job " + job);
}

/// The lines of the events after `since`.
std::string lines_of(const JobHistory& history, std::uint64_t since, bool is_brief) {
    std::string lines;
    for (const RecordedEvent& event : history.events()) {
        if (event.number > since) {
            lines += *(is_brief ? event.brief : event.line) + "\n";
        }
    }
    return lines;
}

/// No event comes any more.
bool is_over(const JobHistory& history) {
    return !history.events().empty() &&
           history.events().back().event.kind == JobEvent::Kind::closed;
}

/// `views` has the one job of `history`.
std::string trace_of(const std::vector<JobView>& views, const JobHistory& history) {
    TraceSource source;
    for (const JobView& view : views) {
        source.job = view.job;
        source.began_ms = view.began_ms;
        source.now = view.now;
    }
    source.samples = history.samples();
    for (const RecordedEvent& event : history.events()) {
        source.lines.push_back(*event.line);
    }
    return trace_json(source, kTraceLimits);
}

std::string word_of(const json& object, const char* field) {
    return protocol::beginning_of(text_in(object, field), kWordsBytesMax);
}

}  // namespace

DaemonPages::DaemonPages(boost::asio::io_context& io, const Clock& clock, JobTable& jobs,
                         Count count, Log log)
    : clock_(clock),
      jobs_(jobs),
      count_(std::move(count)),
      log_(std::move(log)),
      texts_(clock, kTextsBytesMax),
      timer_(io) {}

DaemonPages::~DaemonPages() = default;

bool DaemonPages::is_public(const std::string& path) const {
    // The files of the page are in each copy of regroup, and tell nothing of this daemon.
    return path == "/healthz" || path == "/readyz" || http::asset(path) != nullptr;
}

void DaemonPages::answer(const Request& request, Reply reply) {
    if (request.method == Request::Method::post) {
        act(request, reply);
        return;
    }
    reply(get(request));
}

Answer DaemonPages::get(const Request& request) {
    const std::string& path = request.path;
    if (path == "/healthz") {
        return http::sentence(200, "alive");
    }
    if (path == "/readyz") {
        return ready();
    }
    if (const Answer* file = http::asset(path)) {
        return *file;
    }
    if (path == "/metrics") {
        return metrics(request);
    }
    if (!path.starts_with("/api/")) {
        return http::sentence(404, "there is no such page");
    }
    if (jobs_.journal().role() != DaemonRole::leads) {
        return not_leading();
    }
    const std::string wanted = parameter(request, "job");
    if (path == kJobs && wanted.empty()) {
        return text_answer(kJson, jobs_.views().fresh_status(visible(request, "").value_or("")));
    }
    if (path == kJobs) {
        return get_job(request, wanted, "");
    }
    if (path == "/api/v1/events" || path == "/api/v1/trace") {
        return get_job(request, wanted, path.substr(path.rfind('/') + 1));
    }
    if (path == "/api/v1/stream") {
        const auto job = visible(request, wanted);
        if (!job) {
            return no_such_job(wanted);
        }
        Answer answer;
        answer.content_type = "text/event-stream";
        answer.stream = [this, job = *job,
                         form = wants_no_nodes(request) ? Form::brief : Form::whole](
                            const std::shared_ptr<http::Viewer>& viewer) {
            viewer->show(status_event(job));
            watch({viewer, job, form});
        };
        return answer;
    }
    const std::optional<JobPath> where = job_path(path);
    return where ? get_job(request, where->job, where->part)
                 : error_json(404, "there is no such path");
}

Answer DaemonPages::not_leading() const {
    const std::string& leader = jobs_.journal().leader();
    Answer answer =
        error_json(503, leader.empty() ? "this daemon does not lead now; try again later"
                                       : "another daemon leads: " + leader);
    answer.fields[http::kLeaderField] = leader;
    return answer;
}

Answer DaemonPages::get_job(const Request& request, const std::string& job,
                            const std::string& part) {
    if (action_of(part)) {
        Answer answer = error_json(405, "this is an action: POST it");
        answer.fields["Allow"] = "POST";
        return answer;
    }
    const auto seen = visible(request, job);
    if (!seen) {
        return no_such_job(job);
    }
    const Result<Job*> found = jobs_.operators().job_named(*seen, request.peer.scope.job.empty());
    if (!found) {
        return error_json(404, found.error().detail);
    }
    const std::string& id = (*found)->key.id;
    if (part == "events") {
        return events(request, **found);
    }
    if (part == "trace") {
        return text_answer(kJson, texts_.get("trace\n" + id, [this, &id, &found] {
            return trace_of(jobs_.views().of(id), (*found)->history);
        }));
    }
    return text_answer(kJson, jobs_.views().fresh_status(id));
}

Answer DaemonPages::events(const Request& request, const Job& job) {
    const std::int64_t began_ms = number_of(request, "began");
    const bool is_of_this_job = began_ms == 0 || began_ms == job.key.began_ms;
    const std::uint64_t since =
        is_of_this_job ? static_cast<std::uint64_t>(number_of(request, "since")) : 0;
    Answer answer;
    if (parameter(request, "follow") == "1") {
        answer = follow(job, since);
    } else {
        const bool is_brief = wants_no_nodes(request);
        const std::string key =
            (is_brief ? "brief events\n" : "events\n") + std::to_string(since) + "\n" + job.key.id;
        answer.body = texts_.get(key, [&] { return lines_of(job.history, since, is_brief); });
    }
    answer.content_type = "application/x-ndjson";
    answer.fields[http::kBeganField] = std::to_string(job.key.began_ms);
    return answer;
}

Answer DaemonPages::follow(const Job& job, std::uint64_t since) {
    Answer answer;
    answer.sign_of_life = "\n";
    answer.stream = [this, id = job.key.id, began_ms = job.key.began_ms,
                     since](const std::shared_ptr<http::Viewer>& viewer) {
        const Job* const present = jobs_.find(id);
        if (present == nullptr || present->key.began_ms != began_ms) {
            viewer->close();
            return;
        }
        const JobHistory& history = present->history;
        viewer->push(std::make_shared<const std::string>("\n" + lines_of(history, since, false)));
        if (is_over(history)) {
            viewer->finish();
        } else {
            watch({viewer, id, Form::lines, began_ms});
        }
    };
    return answer;
}

// A daemon that does not lead has metrics, too, but no jobs.
Answer DaemonPages::metrics(const Request& request) {
    const std::string wanted = parameter(request, "job");
    const auto job = visible(request, wanted);
    const bool leads = jobs_.journal().role() == DaemonRole::leads;
    if (!job || (!wanted.empty() && leads && jobs_.find(*job) == nullptr)) {
        return http::sentence(404, "there is no job " + wanted);
    }
    MetricsOptions options;
    options.format = metrics_format(request.accept);
    options.nodes = parameter(request, "nodes") == "1";
    const std::string key = "metrics\n" + std::to_string(static_cast<int>(options.format)) +
                            (options.nodes ? "n" : "") + "\n" + *job;
    return text_answer(content_type(options.format), texts_.get(key, [&] {
        const std::optional<DaemonCounters> daemon =
            job->empty() ? std::optional(count_()) : std::nullopt;
        return metrics_text(leads ? jobs_.views().of(*job) : std::vector<JobView>(),
                            daemon ? &*daemon : nullptr, options);
    }));
}

Answer DaemonPages::ready() const {
    switch (jobs_.journal().role()) {
        case DaemonRole::leads:
            return http::sentence(200, "ready: leads");
        case DaemonRole::stands_by:
            return http::sentence(200, "ready: stands by, another daemon leads");
        case DaemonRole::restores:
            return http::sentence(503, "not ready: restores its jobs");
        case DaemonRole::ends:
            break;
    }
    return http::sentence(503, "not ready: ends");
}

void DaemonPages::act(const Request& request, const Reply& reply) {
    const std::optional<JobPath> where = job_path(request.path);
    const std::optional<Operate::Action> action = where ? action_of(where->part) : std::nullopt;
    if (!action) {
        Answer answer = error_json(405, "only GET and HEAD are served here");
        answer.fields["Allow"] = "GET, HEAD";
        reply(std::move(answer));
        return;
    }
    const auto job = visible(request, where->job);
    const bool leads = jobs_.journal().role() == DaemonRole::leads;
    if (!job || (leads && jobs_.find(*job) == nullptr)) {
        reply(no_such_job(where->job));
        return;
    }
    const json body = parse_json(request.body);
    if (!body.is_object()) {
        reply(error_json(400, "the body must be a JSON object"));
        return;
    }
    Operate operate;
    operate.job = *job;
    operate.action = *action;
    operate.node = word_of(body, "node");
    operate.reason = word_of(body, "reason");
    operate.author = request.peer.name;
    if (names_node(*action) && operate.node.empty()) {
        reply(error_json(400, "the field 'node' must name the node to " + where->part));
        return;
    }
    log_("job " + *job + ": " + std::string(to_string(operate.action)) +
         (operate.node.empty() ? "" : " of " + operate.node) + " asked for by " +
         request.peer.name + " over HTTP from " + request.address);
    jobs_.operators().operate(
        operate, request.peer.scope.job.empty(), [reply](bool done, std::string text) {
            const json answer = {{"done", done}, {"text", text}};
            Answer made = text_answer(kJson, std::make_shared<const std::string>(
                                                 printable_json(json_text(answer)) + "\n"));
            made.status = done ? 200 : 409;
            reply(std::move(made));
        });
}

DaemonPages::Text DaemonPages::status_event(const std::string& job) {
    return texts_.get("event\n" + job, [this, &job] {
        return http::event_text("status", *jobs_.views().status(job));
    });
}

void DaemonPages::publish(const std::string& job, const RecordedEvent& event) {
    std::map<Form, Text> texts;
    const Job* const present = jobs_.find(job);
    for (const Watch& watch : watches_) {
        const auto viewer = watch.viewer.lock();
        if (!viewer || (!watch.job.empty() && watch.job != job)) {
            continue;
        }
        const bool is_lines = watch.form == Form::lines;
        if (is_lines && (present == nullptr || present->key.began_ms != watch.began_ms)) {
            viewer->close();  // The job was begun anew, and the client asks for all its events.
            continue;
        }
        Text& text = texts[watch.form];
        if (!text) {
            const std::string& line = watch.form == Form::brief ? *event.brief : *event.line;
            text = std::make_shared<const std::string>(is_lines ? line + "\n"
                                                                : http::event_text("job", line));
        }
        viewer->push(text);
        if (is_lines && event.event.kind == JobEvent::Kind::closed) {
            viewer->finish();
        }
    }
    show_after(std::max(Duration::zero(), after(shown_, pause_) - clock_.now()));
}

void DaemonPages::watch(Watch watch) {
    forget_gone();  // Viewers can come and go faster than they are shown anything.
    watches_.push_back(std::move(watch));
    show_after(kShowInterval);
}

void DaemonPages::forget_gone() {
    std::erase_if(watches_, [](const Watch& watch) {
        const auto viewer = watch.viewer.lock();
        return !viewer || !viewer->is_open();
    });
}

void DaemonPages::show_after(Duration delay) {
    const Instant at = after(clock_.now(), delay);
    if (watches_.empty() || (show_at_ != Instant{} && show_at_ <= at)) {
        return;
    }
    show_at_ = at;
    timer_.expires_after(delay);
    timer_.async_wait(
        [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& error) {
            if (!error && !alive.expired()) {
                show();
            }
        });
}

void DaemonPages::show() {
    show_at_ = {};
    if (!pass_.empty()) {
        show_again_ = true;
        return;
    }
    for (const Watch& watch : watches_) {
        const auto viewer = watch.viewer.lock();
        const bool is_gone = watch.form == Form::lines && jobs_.find(watch.job) == nullptr;
        if (viewer && (is_gone || jobs_.journal().role() != DaemonRole::leads)) {
            viewer->close();
        }
    }
    forget_gone();
    for (const Watch& watch : watches_) {
        if (watch.form != Form::lines) {
            pass_.insert(watch.job);
        }
    }
    pass_cost_ = {};
    if (pass_.empty()) {
        show_after(kShowInterval);
    } else {
        show_next();
    }
}

void DaemonPages::show_next() {
    const Instant began = clock_.now();
    const std::string job = *pass_.begin();
    pass_.erase(pass_.begin());
    const Text text = status_event(job);
    for (const Watch& watch : watches_) {
        const auto viewer = watch.viewer.lock();
        if (viewer && watch.job == job && watch.form != Form::lines) {
            viewer->show(text);
        }
    }
    shown_ = clock_.now();
    pass_cost_ += shown_ - began;
    if (pass_.empty()) {
        pause_ = freshness(pass_cost_);
        show_after(std::exchange(show_again_, false) ? pause_ : std::max(pause_, kShowInterval));
        return;
    }
    // Others have their turn between two jobs.
    boost::asio::post(timer_.get_executor(), [this, alive = std::weak_ptr(alive_)] {
        if (!alive.expired()) {
            show_next();
        }
    });
}

}  // namespace regroup::rendezvous
