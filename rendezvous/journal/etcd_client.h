// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <nlohmann/json.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/client/endpoint.h"

namespace regroup::journal {

/// One connection to etcd's JSON gateway (3.4 and newer), opened on demand. After a failure the
/// next call goes to the next endpoint. One call at a time.
class EtcdClient {
   public:
    /// Requires at least one endpoint. `io` outlives it.
    EtcdClient(boost::asio::io_context& io, std::vector<rendezvous::Endpoint> endpoints);
    ~EtcdClient();
    EtcdClient(const EtcdClient&) = delete;
    EtcdClient& operator=(const EtcdClient&) = delete;

    /// POSTs `request` to `path`, "/v3/kv/txn", and returns the answer. Errors: disconnected, with
    /// the endpoint and the reason, also when there is no complete answer within `limit`;
    /// invalid_argument, with the error that etcd reports.
    boost::asio::awaitable<Result<nlohmann::json>> call(std::string path, nlohmann::json request,
                                                        Duration limit);
    /// Ends the call in progress, if there is one, and every later one.
    void close();

   private:
    struct Connection;
    std::shared_ptr<Connection> connection_;
};

}  // namespace regroup::journal
