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
#include "rendezvous/journal/etcd_access.h"

namespace regroup::journal {

/// One connection to etcd's JSON gateway (3.4 and newer), opened on demand. With a user name it
/// logs in before the first call, and again when etcd no longer knows the login. After a failure
/// the next call goes to the next endpoint. One call at a time.
class EtcdClient {
   public:
    struct Options {
        std::vector<rendezvous::Endpoint> endpoints;  ///< At least one.
        EtcdAccess access{};
        std::string prefix{};  ///< Of the keys that the user must have access to; for errors.
    };

    /// `io` outlives it.
    EtcdClient(boost::asio::io_context& io, Options options);
    ~EtcdClient();
    EtcdClient(const EtcdClient&) = delete;
    EtcdClient& operator=(const EtcdClient&) = delete;

    /// POSTs `request` to `path`, "/v3/kv/txn", and returns the answer. Errors: disconnected, with
    /// the endpoint and the reason, also when there is no complete answer within `limit`;
    /// invalid_argument, with the error that etcd reports, if it can never accept this request.
    boost::asio::awaitable<Result<nlohmann::json>> call(std::string path, nlohmann::json request,
                                                        Duration limit);
    /// Ends the call in progress, if there is one, and every later one.
    void close();

    /// Reads the files of `access` once, to find mistakes early. Errors: invalid_argument, system;
    /// each names the flag and the file.
    [[nodiscard]] static Result<void> check(const EtcdAccess& access);

   private:
    struct Connection;
    std::shared_ptr<Connection> connection_;
};

}  // namespace regroup::journal
