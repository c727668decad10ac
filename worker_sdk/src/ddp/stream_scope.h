// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <optional>

namespace regroup::ddp {

/// Puts a group's operations into a stream for the time of a scope, and then into the previous one,
/// unless another stream was chosen in the meantime.
class StreamScope {
   public:
    StreamScope(ProcessGroup& group, Stream stream)
        : group_(group), stream_(stream), before_(group.current_stream()) {
        group_.use_stream(stream_);
    }
    ~StreamScope() {
        if (group_.current_stream() != stream_) {
            return;
        }
        if (before_) {
            group_.use_stream(*before_);
        } else {
            group_.use_own_stream();
        }
    }
    StreamScope(const StreamScope&) = delete;
    StreamScope& operator=(const StreamScope&) = delete;

   private:
    ProcessGroup& group_;
    const Stream stream_;
    const std::optional<Stream> before_;
};

}  // namespace regroup::ddp
