// SPDX-License-Identifier: Apache-2.0
//
// Entries as JSON: single ones in entry_codec.cc, many similar ones in record_codec.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "rendezvous/journal/journal.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/protocol/field_reader.h"

namespace regroup::journal {

[[nodiscard]] Failure malformed(const std::string& what);

[[nodiscard]] inline std::int64_t microseconds_of(Instant at) {
    return std::chrono::duration_cast<std::chrono::microseconds>(at.time_since_epoch()).count();
}

[[nodiscard]] nlohmann::json to_json(const Entry& entry);
[[nodiscard]] Result<Entry> entry_of(const nlohmann::json& object);

/// The assignments of one step. Most differ only in the ranks, so the common part is written once.
[[nodiscard]] nlohmann::json to_json(const std::vector<Assigned>& assigned);
void read_assigned(protocol::FieldReader& entry, std::vector<Assigned>& out);

}  // namespace regroup::journal
