// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <type_traits>
#include <variant>

#include <boost/pfr.hpp>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "rendezvous/protocol/codec.h"

namespace regroup::protocol {

inline Result<rendezvous::FromAgent> decoded(const rendezvous::FromAgent& message) {
    return decode_from_agent(encode(message));
}
inline Result<rendezvous::FromDaemon> decoded(const rendezvous::FromDaemon& message) {
    return decode_from_daemon(encode(message));
}

/// The message as its receiver gets it.
template <class Message>
Message through(const Message& message) {
    using Any = std::conditional_t<std::is_constructible_v<rendezvous::FromAgent, Message>,
                                   rendezvous::FromAgent, rendezvous::FromDaemon>;
    const Result<Any> got = decoded(Any(message));
    if (!got) {
        ADD_FAILURE() << got.error().detail;
        return {};
    }
    return std::get<Message>(*got);
}

/// Each field is the same at the receiver.
template <class Message>
void expect_kept(const Message& message) {
    EXPECT_TRUE(boost::pfr::eq_fields(through(message), message)) << encode(message) << "\n"
                                                                  << encode(through(message));
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
