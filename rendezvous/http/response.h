// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "rendezvous/http/pages.h"

namespace regroup::http {

/// The head of a response, up to and with the empty line. `keep_alive`: another request may follow.
/// `wants_token`: the client is asked for a password.
[[nodiscard]] std::string response_head(const Answer& answer, bool keep_alive, bool wants_token);

/// True if `if_none_match` names the answer's entity tag.
[[nodiscard]] bool is_unchanged(const Answer& answer, const std::string& if_none_match);

}  // namespace regroup::http
