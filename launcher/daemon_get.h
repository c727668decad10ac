// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/client/http_client.h"
#include "rendezvous/security/credentials.h"

namespace regroup::launcher {

/// Where a command finds the daemons, and who asks them.
struct DaemonAccess {
    std::vector<rendezvous::Endpoint> endpoints;
    Duration limit = std::chrono::seconds(10);  ///< For an answer.
    security::Identity identity;
};

/// "/api/v1/PART", with the job as parameter if it is not empty.
[[nodiscard]] std::string target_of(const std::string& part, const std::string& job);

/// The body of the answer. Errors: disconnected, when no daemon answers in time; invalid_argument,
/// when the daemon refuses. Each is one sentence.
[[nodiscard]] Result<std::string> get_from_daemon(const DaemonAccess& access,
                                                  const std::string& target);

/// Why the daemon refuses; nothing if it does not.
[[nodiscard]] std::optional<std::string> refusal_in(const rendezvous::HttpAnswer& answer);

}  // namespace regroup::launcher
