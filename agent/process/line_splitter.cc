// SPDX-License-Identifier: Apache-2.0
#include "agent/process/line_splitter.h"

namespace regroup::agent {

void LineSplitter::feed(std::string_view bytes, Instant now, const Sink& sink) {
    constexpr Duration kUpdateInterval = std::chrono::seconds(1);
    while (!bytes.empty()) {
        if (after_return_ && bytes.front() != '\n') {
            after_return_ = false;
            if (now >= next_update_ && !partial_.empty()) {
                next_update_ = after(now, kUpdateInterval);
                end_line(sink);
            }
            partial_.clear();
        }
        const std::size_t end = bytes.find_first_of("\r\n");
        append(bytes.substr(0, end), sink);
        if (end == std::string_view::npos) {
            return;
        }
        if (bytes[end] == '\n') {
            end_line(sink);
        } else {
            after_return_ = true;
        }
        bytes.remove_prefix(end + 1);
    }
}

void LineSplitter::finish(const Sink& sink) {
    if (!partial_.empty()) {
        end_line(sink);
    }
    after_return_ = false;
}

void LineSplitter::append(std::string_view piece, const Sink& sink) {
    for (;;) {
        const std::size_t room = kLineBytesMax - partial_.size();
        partial_.append(piece.substr(0, room));
        if (piece.size() <= room) {
            return;
        }
        piece.remove_prefix(room);
        end_line(sink);
    }
}

void LineSplitter::end_line(const Sink& sink) {
    sink(partial_);
    partial_.clear();
    after_return_ = false;
}

}  // namespace regroup::agent
