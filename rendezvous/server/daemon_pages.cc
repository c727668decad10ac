// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/daemon_pages.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <boost/asio/post.hpp>
#include <nlohmann/json.hpp>

#include "rendezvous/base/printable.h"
#include "rendezvous/http/assets.h"
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

std::string wanted_job(const Request& request) {
    const auto found = request.query.find("job");
    return found == request.query.end() ? "" : found->second;
}

/// The events are to have no lists of nodes.
bool wants_no_nodes(const Request& request) {
    const auto found = request.query.find("nodes");
    return found != request.query.end() && found->second == "0";
}

Answer no_such_job(const std::string& job) {
    return error_json(404, "there is no job " + job);
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
    const auto found = object.find(field);
    return found != object.end() && found->is_string()
               ? protocol::beginning_of(found->get_ref<const std::string&>(), kWordsBytesMax)
               : "";
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
    if (jobs_.journal().standing() != Standing::leads) {
        return error_json(503, jobs_.journal().leader().empty()
                                   ? "this daemon does not lead now; try again later"
                                   : "another daemon leads: " + jobs_.journal().leader());
    }
    const std::string wanted = wanted_job(request);
    if (path == kJobs) {
        const std::string job = visible(request, "").value_or("");
        return text_answer(kJson, jobs_.views().status(job));
    }
    if (path == "/api/v1/stream") {
        const auto job = visible(request, wanted);
        if (!job) {
            return no_such_job(wanted);
        }
        Answer answer;
        answer.content_type = "text/event-stream";
        answer.stream = [this, job = *job, is_brief = wants_no_nodes(request)](
                            const std::shared_ptr<http::Viewer>& viewer) {
            watch({viewer, job, is_brief});
        };
        return answer;
    }
    return get_job(request);
}

Answer DaemonPages::get_job(const Request& request) {
    const std::optional<JobPath> where = job_path(request.path);
    if (!where) {
        return error_json(404, "there is no such path");
    }
    const auto job = visible(request, where->job);
    const Job* const found = job ? jobs_.find(*job) : nullptr;
    if (found == nullptr) {
        return no_such_job(where->job);
    }
    if (where->part.empty()) {
        return text_answer(kJson, jobs_.views().status(*job));
    }
    if (where->part == "events") {
        const bool is_brief = wants_no_nodes(request);
        const std::string key = (is_brief ? "brief events\n" : "events\n") + *job;
        return text_answer("application/x-ndjson", texts_.get(key, [found, is_brief] {
            std::string lines;
            for (const RecordedEvent& event : found->history.events()) {
                lines += *(is_brief ? event.brief : event.line) + "\n";
            }
            return lines;
        }));
    }
    if (where->part == "trace") {
        return text_answer(kJson, texts_.get("trace\n" + *job, [this, &job, found] {
            return trace_of(jobs_.views().of(*job), found->history);
        }));
    }
    if (action_of(where->part)) {
        Answer answer = error_json(405, "this is an action: POST it");
        answer.allow = "POST";
        return answer;
    }
    return error_json(404, "there is no such path");
}

// A daemon that does not lead has metrics, too, but no jobs.
Answer DaemonPages::metrics(const Request& request) {
    const std::string wanted = wanted_job(request);
    const auto job = visible(request, wanted);
    const bool leads = jobs_.journal().standing() == Standing::leads;
    if (!job || (!wanted.empty() && leads && jobs_.find(*job) == nullptr)) {
        return http::sentence(404, "there is no job " + wanted);
    }
    const auto nodes = request.query.find("nodes");
    MetricsOptions options;
    options.format = metrics_format(request.accept);
    options.nodes = nodes != request.query.end() && nodes->second == "1";
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
    switch (jobs_.journal().standing()) {
        case Standing::leads:
            return http::sentence(200, "ready: leads");
        case Standing::stands_by:
            return http::sentence(200, "ready: stands by, another daemon leads");
        case Standing::restores:
            return http::sentence(503, "not ready: restores its jobs");
        case Standing::ends:
            break;
    }
    return http::sentence(503, "not ready: ends");
}

void DaemonPages::act(const Request& request, const Reply& reply) {
    const std::optional<JobPath> where = job_path(request.path);
    const std::optional<Operate::Action> action = where ? action_of(where->part) : std::nullopt;
    if (!action) {
        Answer answer = error_json(405, "only GET and HEAD are served here");
        answer.allow = "GET, HEAD";
        reply(std::move(answer));
        return;
    }
    const auto job = visible(request, where->job);
    const bool leads = jobs_.journal().standing() == Standing::leads;
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
    Text whole;
    Text brief;
    for (const Watch& watch : watches_) {
        const auto viewer = watch.viewer.lock();
        if (!viewer || (!watch.job.empty() && watch.job != job)) {
            continue;
        }
        Text& text = watch.is_brief ? brief : whole;
        if (!text) {
            text = std::make_shared<const std::string>(
                http::event_text("job", watch.is_brief ? *event.brief : *event.line));
        }
        viewer->push(text);
    }
    show_after(std::max(Duration::zero(), after(shown_, pause_) - clock_.now()));
}

void DaemonPages::watch(Watch watch) {
    forget_gone();  // Viewers can come and go faster than they are shown anything.
    if (const auto viewer = watch.viewer.lock()) {
        viewer->show(status_event(watch.job));
    }
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
        if (viewer && jobs_.journal().standing() != Standing::leads) {
            viewer->close();
        }
    }
    forget_gone();
    for (const Watch& watch : watches_) {
        pass_.insert(watch.job);
    }
    pass_cost_ = {};
    if (!pass_.empty()) {
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
        if (viewer && watch.job == job) {
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
