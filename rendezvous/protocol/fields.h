// SPDX-License-Identifier: Apache-2.0
//
// The fields of the parts that several messages share, for a FieldReader or a FieldWriter. The
// message itself has them, or an object in it.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "rendezvous/protocol/field_reader.h"
#include "rendezvous/protocol/field_rules.h"
#include "rendezvous/protocol/field_writer.h"

namespace regroup::protocol {

/// The beginning of `text`, cut to kSentenceBytesMax.
[[nodiscard]] std::string sentence(const std::string& text);

template <class Io>
void visit_fields(Io& io, Visited<Io, rendezvous::NodeReport>& report);
template <class Io>
void visit_fields(Io& io, Visited<Io, rendezvous::Telemetry>& telemetry);
template <class Io>
void visit_fields(Io& io, Visited<Io, rendezvous::SnapshotFacts>& snapshots);
template <class Io>
void visit_fields(Io& io, Visited<Io, rendezvous::WorkWindow>& window);
template <class Io>
void visit_fields(Io& io, Visited<Io, rendezvous::SlowRank>& slow);
template <class Io>
void visit_fields(Io& io, Visited<Io, rendezvous::JobPolicy>& policy);
template <class Io>
void visit_fields(Io& io, Visited<Io, rendezvous::Offer>& offer);
template <class Io>
void visit_fields(Io& io, Visited<Io, rendezvous::Assignment>& assignment);
template <class Io>
void visit_fields(Io& io, Visited<Io, rendezvous::Resumed>& resumed);
template <class Io>
void visit_fields(Io& io, Visited<Io, rendezvous::Incident>& incident);
template <class Io>
void visit_fields(Io& io, Visited<Io, rendezvous::Verdict>& verdict);
template <class Io>
void visit_fields(Io& io, Visited<Io, rendezvous::LogWish>& wish);

/// Writes the fields of `part` into `object`.
template <class Part>
void write(nlohmann::json& object, const Part& part) {
    FieldWriter writer(object);
    visit_fields(writer, part);
}

}  // namespace regroup::protocol
