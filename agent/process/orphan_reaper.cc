// SPDX-License-Identifier: Apache-2.0
#include "agent/process/orphan_reaper.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "agent/process/process_tree.h"

namespace regroup::agent {

struct OrphanReaper::State {
    State(boost::asio::io_context& io, const LinuxLauncher& launcher_in)
        : child_ended(io, SIGCHLD), launcher(launcher_in) {}

    boost::asio::signal_set child_ended;
    const LinuxLauncher& launcher;
};

OrphanReaper::OrphanReaper(boost::asio::io_context& io, const LinuxLauncher& launcher)
    : state_(std::make_shared<State>(io, launcher)) {
    wait(state_);
}

OrphanReaper::~OrphanReaper() = default;

void OrphanReaper::wait(const std::shared_ptr<State>& state) {
    state->child_ended.async_wait(
        [weak = std::weak_ptr<State>(state)](const boost::system::error_code& error, int) {
            const std::shared_ptr<State> held = weak.lock();
            if (held && !error) {
                // Wait again first: a child that ends from now on gives a new signal.
                wait(held);
                reap_orphans(held->launcher.children());
            }
        });
}

}  // namespace regroup::agent
