// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/clock.h"

namespace regroup::rendezvous {

/// Asks once, without changing anything there, whether `endpoint` is a TCPStore server of PyTorch
/// 2.2 or newer. Calls `done` with the answer, false at the latest after `limit`.
void probe_store(boost::asio::io_context& io, const boost::asio::ip::tcp::endpoint& endpoint,
                 Duration limit, std::function<void(bool is_store)> done);

}  // namespace regroup::rendezvous
