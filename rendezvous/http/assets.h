// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "rendezvous/http/pages.h"

namespace regroup::http {

/// The answer with the file of the folder `page` that `path` names ("/style.css"; "/" is
/// index.html). The files are part of this program. Null if there is none.
[[nodiscard]] const Answer* asset(std::string_view path);

}  // namespace regroup::http
