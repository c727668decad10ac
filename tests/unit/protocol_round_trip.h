// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "rendezvous/protocol/codec.h"

namespace regroup::protocol {

/// The message as the daemon gets it.
template <class Message>
Message through_agent(const Message& message) {
    Result<rendezvous::FromAgent> decoded =
        decode_from_agent(encode(rendezvous::FromAgent(message)));
    if (!decoded) {
        ADD_FAILURE() << decoded.error().detail;
        return {};
    }
    return std::get<Message>(*decoded);
}

/// The message as an agent gets it.
template <class Message>
Message through_daemon(const Message& message) {
    Result<rendezvous::FromDaemon> decoded =
        decode_from_daemon(encode(rendezvous::FromDaemon(message)));
    if (!decoded) {
        ADD_FAILURE() << decoded.error().detail;
        return {};
    }
    return std::get<Message>(*decoded);
}

template <class Message>
std::string error_of(const Result<Message>& result) {
    return result ? "no error" : result.error().detail;
}

inline nlohmann::json json_of(const rendezvous::FromAgent& message) {
    return nlohmann::json::parse(encode(message));
}
inline nlohmann::json json_of(const rendezvous::FromDaemon& message) {
    return nlohmann::json::parse(encode(message));
}

}  // namespace regroup::protocol
