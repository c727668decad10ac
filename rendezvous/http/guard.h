// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>

#include "rendezvous/http/pages.h"
#include "rendezvous/http/request_head.h"
#include "rendezvous/security/credentials.h"

namespace regroup::http {

/// A client, as far as its connection alone tells.
struct Client {
    std::string peer;                      ///< "10.0.0.4:41234", for the log.
    std::string address;                   ///< "10.0.0.4".
    bool is_here = false;                  ///< The connection cannot have left this host.
    bool is_secured = false;               ///< It speaks TLS.
    std::optional<security::Peer> proven;  ///< By its user, by TLS, or since all are trusted.
    /// The sentence for a client that has proved nothing, if no token can help.
    std::string objection;
};

/// Decides whether a request may pass. It does no I/O and keeps no state.
class Guard {
   public:
    /// `hosts`: the names of this host, and others by which clients may call it.
    Guard(const security::Credentials& credentials, const std::set<std::string>& hosts)
        : credentials_(credentials), hosts_(hosts) {}

    struct Refusal {
        Answer answer;
        bool wants_token = false;  ///< Tell the client to show one.
        std::string log{};         ///< The predicate of a sentence about the client; may be empty.
    };
    /// The peer that asks, or why it is refused. `is_public`: everybody may get that path.
    [[nodiscard]] std::variant<security::Peer, Refusal> judge(const Client& client,
                                                              const RequestHead& head,
                                                              bool is_public) const;

   private:
    /// The same for the identity of the peer.
    [[nodiscard]] std::variant<security::Peer, Refusal> identify(const Client& client,
                                                                 const RequestHead& head) const;

    const security::Credentials& credentials_;
    const std::set<std::string>& hosts_;
};

/// The host of a field Host, without the port, in lower case. Nothing if it has no valid form.
[[nodiscard]] std::optional<std::string> host_of(std::string_view field);
/// True for an IP address, localhost, and each of `hosts`: a page of another site, whose name a
/// hostile name server makes an address of this host, has none of them.
[[nodiscard]] bool is_own_host(std::string_view field, const std::set<std::string>& hosts);
/// The token in a field Authorization; empty if there is none.
[[nodiscard]] std::string token_of(std::string_view authorization);

}  // namespace regroup::http
