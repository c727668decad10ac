// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/event_followers.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "rendezvous/base/fair_share.h"
#include "rendezvous/protocol/codec.h"

namespace regroup::rendezvous {

namespace {

// How soon a slow reader is looked at again.
constexpr Duration kPause = std::chrono::milliseconds(20);
// A reader gives a daemon up that is silent for a few times as long.
constexpr Duration kSilence = std::chrono::seconds(10);

struct Page {
    std::string lines;
    std::uint64_t last = 0;  ///< The number of its last event.
};

/// The events after `since` that fit a page, at least one if there is one.
Page page_of(const JobHistory& history, std::uint64_t since) {
    Page page{"", since};
    const std::deque<RecordedEvent>& events = history.events();
    const std::uint64_t first = events.empty() ? 0 : events.front().number;
    for (std::size_t i = since < first ? 0 : since - first + 1; i < events.size(); ++i) {
        const std::string& line = *events[i].line;
        if (!page.lines.empty() &&
            page.lines.size() + line.size() + 1 > protocol::kStatusBytesMax) {
            break;
        }
        page.lines += line + "\n";
        page.last = events[i].number;
    }
    return page;
}

}  // namespace

EventFollowers::EventFollowers(boost::asio::any_io_executor executor, SourceOf source_of)
    : source_of_(std::move(source_of)), timer_(std::move(executor)) {}

bool EventFollowers::make_room(const std::shared_ptr<Session>& session) {
    if (followers_.size() < kMax) {
        return true;
    }
    std::map<std::string, std::size_t> held;
    for (const Follower& follower : followers_) {
        ++held[follower.session->peer.name()];
    }
    const std::optional<std::string> most = gives_way(held, session->peer.name());
    if (!most) {
        return false;
    }
    const auto newest = std::find_if(
        followers_.rbegin(), followers_.rend(),
        [&](const Follower& follower) { return follower.session->peer.name() == *most; });
    newest->session->close();
    followers_.erase(std::next(newest).base());
    return true;
}

void EventFollowers::add(const std::shared_ptr<Session>& session, const std::string& job,
                         const Operate& asked) {
    ended(session);
    Follower follower;
    follower.session = session;
    follower.job = job;
    follower.stays = asked.follow;
    const Source source = source_of_(job);
    follower.began_ms = source.began_ms;
    const bool is_of_this_job = asked.began_ms == 0 || asked.began_ms == source.began_ms;
    follower.sent = is_of_this_job ? asked.since : 0;
    if (pump(follower, true)) {
        followers_.push_back(std::move(follower));
        arm(kPause);
    }
}

bool EventFollowers::pump(Follower& follower, bool waits) {
    const std::shared_ptr<Session>& session = follower.session;
    if (waits && !session->is_flushed()) {
        return true;
    }
    const Source source = source_of_(follower.job);
    if (source.history == nullptr || !session->stream.is_open()) {
        session->close();
        return false;
    }
    if (follower.began_ms != source.began_ms) {
        follower.began_ms = source.began_ms;
        follower.sent = 0;
    }
    Page page = page_of(*source.history, follower.sent);
    follower.sent = page.last;
    follower.is_behind = follower.sent < source.history->last_number();
    const bool is_last = !follower.is_behind && (!follower.stays || source.is_over);
    session->send(EventPage{follower.job, follower.began_ms, std::move(page.lines), is_last});
    if (is_last) {
        session->finish();
    }
    return !is_last && session->stream.is_open();
}

void EventFollowers::pump_all(bool waits) {
    followers_.remove_if(
        [&](Follower& follower) { return follower.is_behind && !pump(follower, waits); });
}

void EventFollowers::note(const std::string& job) {
    bool any = false;
    for (Follower& follower : followers_) {
        follower.is_behind = follower.is_behind || follower.job == job;
        any = any || follower.job == job;
    }
    if (any) {
        arm(Duration::zero());
    }
}

void EventFollowers::arm(Duration pause) {
    if (armed_) {
        return;
    }
    armed_ = true;
    timer_.expires_after(pause);
    timer_.async_wait(
        [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& error) {
            if (error || alive.expired()) {
                return;
            }
            armed_ = false;
            pump_all(true);
            if (std::any_of(followers_.begin(), followers_.end(),
                            [](const Follower& follower) { return follower.is_behind; })) {
                arm(kPause);
            }
        });
}

void EventFollowers::sweep(Instant now) {
    for (Follower& follower : followers_) {
        const bool is_new = follower.spoken == Instant();
        if (is_new || now - follower.spoken >= kSilence) {
            follower.spoken = now;
            follower.is_behind = follower.is_behind || !is_new;
        }
    }
    pump_all(true);
}

void EventFollowers::ended(const std::shared_ptr<Session>& session) {
    followers_.remove_if([&](const Follower& follower) { return follower.session == session; });
}

void EventFollowers::flush() {
    pump_all(false);
}

void EventFollowers::hang_up() {
    for (const Follower& follower : std::exchange(followers_, {})) {
        follower.session->close();
    }
}

}  // namespace regroup::rendezvous
