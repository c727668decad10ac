// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/contradiction.h"

namespace regroup::rendezvous {

namespace {

std::string differ(const std::string& flag, const std::string& here, const std::string& there) {
    return flag + " is " + here + " here, " + there + " there";
}

}  // namespace

std::string nodes_range(const JobPolicy& policy) {
    return std::to_string(policy.nodes_min) + ":" + std::to_string(policy.nodes_max);
}

std::optional<std::string> contradiction(const JobPolicy& job, const JobPolicy& newcomer) {
    if (job.nodes_min != newcomer.nodes_min || job.nodes_max != newcomer.nodes_max) {
        return differ("--nnodes", nodes_range(newcomer), nodes_range(job));
    }
    if (job.program != newcomer.program) {
        return differ("the program", newcomer.program, job.program);
    }
    if (job.restarts_max != newcomer.restarts_max) {
        return differ("--max-restarts", std::to_string(newcomer.restarts_max),
                      std::to_string(job.restarts_max));
    }
    struct Limit {
        const char* flag;
        Duration here;
        Duration there;
    };
    for (const Limit& limit :
         {Limit{"--last-call", newcomer.last_call, job.last_call},
          Limit{"--heartbeat-timeout", newcomer.heartbeat_timeout, job.heartbeat_timeout},
          Limit{"--shutdown-timeout", newcomer.shutdown_timeout, job.shutdown_timeout},
          Limit{"--grow-after", newcomer.grow_after, job.grow_after}}) {
        if (limit.here != limit.there) {
            return differ(limit.flag, format_duration(limit.here), format_duration(limit.there));
        }
    }
    return std::nullopt;
}

}  // namespace regroup::rendezvous
