// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/http/pages.h"
#include "rendezvous/server/job_table.h"
#include "rendezvous/server/shared_texts.h"
#include "rendezvous/view/daemon_counters.h"

namespace regroup::rendezvous {

/// The pages that a daemon serves by HTTP; docs/operating.md lists the paths. A text is rendered at
/// most every 250 ms, however many clients ask for it. Rendering for viewers takes about a
/// twentieth of the daemon's time at most, and the rendering of each job is a turn of its own.
class DaemonPages final : public http::Pages {
   public:
    using Log = std::function<void(const std::string& line)>;
    /// The counts of the daemon until now.
    using Count = std::function<DaemonCounters()>;

    /// All of it outlives the DaemonPages.
    DaemonPages(boost::asio::io_context& io, const Clock& clock, JobTable& jobs, Count count,
                Log log);
    ~DaemonPages() override;

    [[nodiscard]] bool is_public(const std::string& path) const override;
    void answer(const http::Request& request, Reply reply) override;

    /// Tells the viewers of the job what happened.
    void publish(const std::string& job, const RecordedEvent& event);

   private:
    using Text = SharedTexts::Text;
    /// The form in which a viewer gets events.
    enum class Form : std::uint8_t {
        whole,
        brief,  ///< Without lists of nodes.
        lines,  ///< As lines of JSON, and nothing else. It ends with the job.
    };
    struct Watch {
        std::weak_ptr<http::Viewer> viewer;
        std::string job;  ///< Empty: all jobs.
        Form form = Form::whole;
        std::int64_t began_ms = 0;  ///< For lines: of the job.
    };

    [[nodiscard]] http::Answer get(const http::Request& request);
    /// The pages below the path of a job, or with the job as parameter.
    [[nodiscard]] http::Answer get_job(const http::Request& request, const std::string& job,
                                       const std::string& part);
    [[nodiscard]] http::Answer events(const http::Request& request, const Job& job);
    /// Goes on with the events after `since`.
    [[nodiscard]] http::Answer follow(const Job& job, std::uint64_t since);
    [[nodiscard]] http::Answer not_leading() const;
    [[nodiscard]] http::Answer metrics(const http::Request& request);
    void act(const http::Request& request, const Reply& reply);
    [[nodiscard]] http::Answer ready() const;
    /// The status of the job, or of all jobs if it is empty, as an event for viewers.
    Text status_event(const std::string& job);
    void watch(Watch watch);
    void forget_gone();
    /// Shows the viewers the present status once `delay` has passed.
    void show_after(Duration delay);
    void show();
    /// Shows one job of the present pass to its viewers, and then the next.
    void show_next();

    const Clock& clock_;
    JobTable& jobs_;
    const Count count_;
    const Log log_;
    SharedTexts texts_;
    std::vector<Watch> watches_;
    boost::asio::steady_timer timer_;
    std::set<std::string> pass_;  // The jobs that are still to be shown.
    Duration pass_cost_{};        // The time for rendering the others so far.
    Duration pause_{};            // From the last pass to the next, if something happens.
    bool show_again_ = false;     // Something has happened during the pass.
    Instant shown_{};             // The end of the last pass.
    Instant show_at_{};           // When the next will begin.
    std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace regroup::rendezvous
