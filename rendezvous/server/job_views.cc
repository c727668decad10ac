// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/job_views.h"

namespace regroup::rendezvous {

namespace {

// The statuses that are kept for some hundred milliseconds.
constexpr std::size_t kKeptBytesMax = std::size_t{16} << 20U;

std::string key_of(const std::string& job_id, std::size_t bytes_max) {
    return std::to_string(bytes_max) + "\n" + job_id;
}

}  // namespace

JobViews::JobViews(const Clock& clock, const JobRunner& runner, const JobJournal& journal)
    : clock_(clock), runner_(runner), journal_(journal), statuses_(clock, kKeptBytesMax) {}

std::vector<JobView> JobViews::of(const std::string& job_id) const {
    std::vector<JobView> views;
    for (const auto& [id, job] : runner_.jobs()) {
        if (job_id.empty() || id == job_id) {
            views.push_back(job.view(clock_.now()));
            views.back().journal = journal_.trouble(job.key);
        }
    }
    return views;
}

SharedTexts::Text JobViews::status(const std::string& job_id, std::size_t bytes_max) {
    return statuses_.get(key_of(job_id, bytes_max),
                         [&] { return jobs_json(of(job_id), bytes_max); });
}

SharedTexts::Text JobViews::fresh_status(const std::string& job_id, std::size_t bytes_max) {
    return statuses_.renew(key_of(job_id, bytes_max),
                           [&] { return jobs_json(of(job_id), bytes_max); });
}

}  // namespace regroup::rendezvous
