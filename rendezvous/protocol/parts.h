// SPDX-License-Identifier: Apache-2.0
//
// Parts that several messages share, as fields of a JSON object. A field that has its default value
// is left out: most jobs send none of the optional fields.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "rendezvous/core/messages.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/field_reader.h"

namespace regroup::protocol {

/// The beginning of `text`, cut to kSentenceBytesMax.
[[nodiscard]] std::string sentence(const std::string& text);
/// `object[key] = text`, cut like a sentence, unless it is empty.
void put_sentence(nlohmann::json& object, const char* key, const std::string& text);

void write(nlohmann::json& object, const rendezvous::WorkerFailure& failure);
void write(nlohmann::json& object, const rendezvous::NodeReport& report);
void write(nlohmann::json& object, const rendezvous::Telemetry& telemetry);
void write(nlohmann::json& object, const rendezvous::JobPolicy& policy);
void write(nlohmann::json& object, const rendezvous::Offer& offer);
void write(nlohmann::json& object, const rendezvous::Assignment& assignment);
void write(nlohmann::json& object, const rendezvous::Resumed& resumed);
void write(nlohmann::json& object, const rendezvous::Incident& incident);
void write(nlohmann::json& object, const rendezvous::Verdict& verdict);
void write(nlohmann::json& object, const rendezvous::LogWish& wish);

/// Reads a value that was sent as a sentence; the text is kept unchanged.
template <class Value>
void read_words(FieldReader& reader, const char* key, Value& out) {
    if (reader.has(key)) {
        std::string words;
        reader.text(key, words, kSentenceBytesMax);
        out = Value(std::move(words));
    }
}

void read(FieldReader& outer, std::string_view key, std::optional<rendezvous::WorkerFailure>& out);
void read(FieldReader& reader, rendezvous::NodeReport& report);
void read(FieldReader& outer, std::string_view key, std::optional<rendezvous::Telemetry>& out);
void read(FieldReader& reader, rendezvous::JobPolicy& policy);
void read(FieldReader& reader, rendezvous::Offer& offer);
void read(FieldReader& reader, rendezvous::Assignment& assignment);
void read(FieldReader& reader, rendezvous::Resumed& resumed);
void read(FieldReader& reader, rendezvous::Incident& incident);
void read(FieldReader& reader, rendezvous::Verdict& verdict);
void read(FieldReader& reader, rendezvous::LogWish& wish);

}  // namespace regroup::protocol
