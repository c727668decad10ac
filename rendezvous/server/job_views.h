// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/server/job_journal.h"
#include "rendezvous/server/job_runner.h"
#include "rendezvous/server/shared_texts.h"
#include "rendezvous/view/job_view.h"

namespace regroup::rendezvous {

/// The view that people and their tools have of the jobs. An empty name stands for all jobs.
class JobViews {
   public:
    /// All references outlive it.
    JobViews(const Clock& clock, const JobRunner& runner, const JobJournal& journal);

    [[nodiscard]] std::vector<JobView> of(const std::string& job_id) const;
    /// Their JSON, which all who ask at about this time share.
    [[nodiscard]] SharedTexts::Text status(const std::string& job_id);
    /// The same for a person who asks once, after doing something, and wants to see it.
    [[nodiscard]] SharedTexts::Text fresh_status(const std::string& job_id);

   private:
    const Clock& clock_;
    const JobRunner& runner_;
    const JobJournal& journal_;
    SharedTexts statuses_;
};

}  // namespace regroup::rendezvous
