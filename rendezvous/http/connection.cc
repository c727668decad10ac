// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/http/connection.h"

#include <utility>

namespace regroup::http {

bool ConnectionViewer::is_open() const {
    const auto connection = connection_.lock();
    return connection && connection->stream.is_open() && !has_too_much_;
}

void ConnectionViewer::push(std::shared_ptr<const std::string> event) {
    if (!is_open()) {
        return;
    }
    // The first text, all that has happened before, may have any size.
    if (events_.size() >= limits_.viewer_events_max ||
        (!events_.empty() && events_bytes_ + event->size() > limits_.viewer_bytes_max)) {
        has_too_much_ = true;
        events_.clear();
        state_ = nullptr;
        close();
        return;
    }
    events_bytes_ += event->size();
    events_.push_back(std::move(event));
    wake();
}

void ConnectionViewer::show(std::shared_ptr<const std::string> state) {
    if (is_open()) {
        state_ = std::move(state);
        wake();
    }
}

void ConnectionViewer::close() {
    if (const auto connection = connection_.lock()) {
        connection->close();
    }
}

void ConnectionViewer::finish() {
    is_finished_ = true;
    wake();
}

std::shared_ptr<const std::string> ConnectionViewer::take() {
    if (events_.empty()) {
        return std::exchange(state_, nullptr);
    }
    std::shared_ptr<const std::string> event = std::move(events_.front());
    events_.pop_front();
    events_bytes_ -= event->size();
    return event;
}

void ConnectionViewer::wake() {
    if (const auto connection = connection_.lock()) {
        connection->has_queue = true;
        connection->wake.cancel();
    }
}

}  // namespace regroup::http
