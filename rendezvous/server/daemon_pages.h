// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/http/pages.h"
#include "rendezvous/server/job_table.h"
#include "rendezvous/view/daemon_counters.h"

namespace regroup::rendezvous {

/// What a daemon serves by HTTP; docs/protocol.md lists the paths. Texts are rendered at most every
/// 250 ms, however many clients ask, and take at most a twentieth of the daemon's time.
class DaemonPages final : public http::Pages {
   public:
    using Log = std::function<void(const std::string& line)>;
    /// What the daemon has counted until now.
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
    using Text = std::shared_ptr<const std::string>;
    struct Rendered {
        Text text;
        Instant until{};  ///< It is rendered again after this.
    };
    struct Watch {
        std::weak_ptr<http::Viewer> viewer;
        std::string job;  ///< Empty: all jobs.
    };

    [[nodiscard]] http::Answer get(const http::Request& request);
    [[nodiscard]] http::Answer get_job(const http::Request& request);
    [[nodiscard]] http::Answer metrics(const http::Request& request);
    void act(const http::Request& request, const Reply& reply);
    [[nodiscard]] http::Answer ready() const;
    /// The text that `render` makes, or the one it made less than 250 ms ago for the same `key`.
    Text cached(const std::string& key, const std::function<std::string()>& render);
    /// The status of the job, or of all jobs if it is empty, as an event for viewers.
    Text status_event(const std::string& job);
    void watch(const std::string& job, const std::shared_ptr<http::Viewer>& viewer);
    void forget_rendered(Instant now);
    /// Shows the viewers the present status once `delay` has passed.
    void show_after(Duration delay);
    void show();

    const Clock& clock_;
    JobTable& jobs_;
    const Count count_;
    const Log log_;
    std::map<std::string, Rendered> cache_;
    std::size_t cache_bytes_ = 0;
    std::vector<Watch> watches_;
    boost::asio::steady_timer timer_;
    Instant shown_{};    // When the viewers were last shown the status.
    Instant show_at_{};  // When they will be.
    std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace regroup::rendezvous
