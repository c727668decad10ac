// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/journal/etcd_access.h"
#include "rendezvous/journal/journal.h"

namespace regroup::journal {

/// A journal in etcd, 3.4 or newer, for several daemons of which one is the leader.
///
/// The leader holds a key that exists as long as its lease. The daemon that creates the key next is
/// the next leader. Each append is a transaction that compares the revision in which the key was
/// created. A daemon that has lost the lead without knowing it can therefore keep nothing, and so
/// decides nothing. A leader also stops when its lease may have ended by its own clock, whether
/// etcd answers or not.
///
/// While etcd is unavailable the daemon decides nothing: running rounds continue, and reports of
/// agents wait. If etcd refuses an entry, for example because it is too large, the journal of that
/// job ends and the job continues without one. Ended jobs are deleted.
class EtcdJournal final : public Journal {
   public:
    struct Options {
        std::vector<rendezvous::Endpoint> endpoints;  ///< Of etcd; at least one.
        EtcdAccess access{};
        std::string advertise;                     ///< The endpoint of this daemon for agents.
        Duration lease = std::chrono::seconds(3);  ///< Whole seconds, at least 2.
        /// A leader resigns if etcd accepts no entries for this long; another daemon may succeed.
        Duration stall_limit = std::chrono::seconds(10);
        std::string prefix = "regroup/";  ///< The prefix of all keys.
        /// The most bytes that wait for etcd. Beyond that the job with the most of them is kept no
        /// more.
        std::size_t waiting_bytes_max = std::size_t{256} << 20U;
    };

    /// `io` and `clock` outlive it.
    EtcdJournal(boost::asio::io_context& io, const Clock& clock, Options options);
    ~EtcdJournal() override;

    void start(Hooks hooks) override;
    void append(const JobKey& job, std::vector<Entry> entries, std::function<void()> done) override;
    void end(const JobKey& job) override;
    [[nodiscard]] std::string trouble(const JobKey& job) const override;
    void resign(std::function<void()> done) override;

   private:
    struct Impl;
    std::shared_ptr<Impl> impl_;
};

}  // namespace regroup::journal
