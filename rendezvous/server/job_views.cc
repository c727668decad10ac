// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/job_views.h"

namespace regroup::rendezvous {

namespace {

constexpr std::size_t kStatusBytesMax = std::size_t{1} << 20U;
// The statuses that are kept for some hundred milliseconds.
constexpr std::size_t kKeptBytesMax = std::size_t{16} << 20U;

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

SharedTexts::Text JobViews::status(const std::string& job_id) {
    return statuses_.get(job_id, [&] { return jobs_json(of(job_id), kStatusBytesMax); });
}

SharedTexts::Text JobViews::fresh_status(const std::string& job_id) {
    return statuses_.renew(job_id, [&] { return jobs_json(of(job_id), kStatusBytesMax); });
}

}  // namespace regroup::rendezvous
