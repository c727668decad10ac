// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/health/facts.h"
#include "rendezvous/base/clock.h"

namespace regroup::health {

/// The space of the file system that has `path`. Waits for as long as that takes. Never fails: what
/// cannot be read is 0.
[[nodiscard]] Folder read_folder(const std::string& path);

/// Asks file systems for their space, each by a thread of its own: a network file system whose
/// server is gone answers after minutes, or never. At most one thread waits for an answer; the end
/// of the process ends it. One owner.
class FolderProbe {
   public:
    using Read = std::function<Folder(const std::string& path)>;

    /// `read` is called by the threads.
    explicit FolderProbe(Read read = read_folder) : read_(std::move(read)) {}

    /// Blocks for `limit` at most. Without an answer by then, the folder is `silent`. While an
    /// earlier question has no answer, it is `silent` at once.
    [[nodiscard]] Folder ask(const std::string& path, Duration limit);

   private:
    struct Question;

    Read read_;
    std::shared_ptr<Question> open_;
};

}  // namespace regroup::health
