// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/journal/journal.h"

namespace regroup::journal {

/// A journal in etcd, 3.4 or newer, for several daemons of which one leads.
///
/// The leader holds a key that lives as long as its lease; whoever creates it next leads next. Each
/// append is a transaction that compares the revision in which that key was created, so that one
/// who has lost the lead, and does not know it yet, can keep nothing and so decides nothing. By its
/// own clock a leader stops when its lease may have ended, whether etcd answers or not.
///
/// While etcd is away nothing is decided: running rounds go on, and what agents report waits.
/// An entry that etcd refuses, because it is too large, ends the journal of its job, and the job
/// goes on without. Jobs are deleted when they have ended. No TLS and no users: keep etcd behind
/// the firewall that the job is behind.
class EtcdJournal final : public Journal {
   public:
    struct Options {
        std::vector<rendezvous::Endpoint> endpoints;  ///< Of etcd; at least one.
        std::string advertise;                        ///< Where agents reach this daemon.
        Duration lease = std::chrono::seconds(3);     ///< Whole seconds, 2 at least.
        /// A leader whose entries etcd has not taken for so long resigns; another may do better.
        Duration stall_limit = std::chrono::seconds(10);
        std::string prefix = "regroup/";  ///< Of all keys.
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
