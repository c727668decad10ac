// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace regroup {

/// REGROUP_SNAPSHOT_DIR: where a process without an agent keeps snapshots; empty: nowhere.
[[nodiscard]] std::string snapshot_folder();

}  // namespace regroup
