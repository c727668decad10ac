// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/http/guard.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include <boost/asio/ip/address.hpp>

#include "rendezvous/base/printable.h"
#include "rendezvous/base/text.h"
#include "rendezvous/security/base64.h"

namespace regroup::http {

namespace {

using Refusal = Guard::Refusal;
using security::Peer;

constexpr std::size_t kShownBytes = 255;

bool is_port(std::string_view text) {
    return text.size() <= 5 && std::ranges::all_of(text, [](unsigned char letter) {
               return std::isdigit(letter) != 0;
           });
}

Refusal refuse(unsigned status, std::string_view text, std::string log = {}) {
    return {sentence(status, text), false, std::move(log)};
}

Refusal want_token(std::string_view text, std::string log = {}) {
    return {sentence(401, text), true, std::move(log)};
}

/// A page of another site that makes the browser send the request. A link that somebody follows is
/// none: only the user sees its answer.
std::string objection_to_origin(const Client& client, const RequestHead& head) {
    const std::string own = (client.is_secured ? "https://" : "http://") + lower(head.host);
    if (head.has_origin && lower(head.origin) != own) {
        return "the request comes from a page of another site (Origin)";
    }
    const bool is_link = head.method == RequestHead::Method::get && head.fetch_mode == "navigate" &&
                         head.fetch_dest == "document";
    const bool is_own_page =
        head.fetch_site.empty() || head.fetch_site == "same-origin" || head.fetch_site == "none";
    return is_own_page || is_link ? ""
                                  : "the request comes from a page of another site "
                                    "(Sec-Fetch-Site)";
}

}  // namespace

std::optional<std::string> host_of(std::string_view field) {
    if (field.starts_with('[')) {
        const std::size_t end = field.find(']');
        const std::string_view rest = end == field.npos ? "" : field.substr(end + 1);
        if (end == field.npos || (!rest.empty() && (rest[0] != ':' || !is_port(rest.substr(1))))) {
            return std::nullopt;
        }
        boost::system::error_code error;
        boost::asio::ip::make_address_v6(std::string(field.substr(1, end - 1)), error);
        return error ? std::nullopt : std::optional(lower(field.substr(0, end + 1)));
    }
    const std::size_t colon = std::min(field.find(':'), field.size());
    if (colon == 0 || !is_port(field.substr(std::min(colon + 1, field.size())))) {
        return std::nullopt;
    }
    return lower(field.substr(0, colon));
}

bool is_own_host(std::string_view field, const std::set<std::string>& hosts) {
    const std::optional<std::string> host = host_of(field);
    if (!host) {
        return false;
    }
    boost::system::error_code error;
    boost::asio::ip::make_address_v4(*host, error);
    return !error || host->starts_with('[') || *host == "localhost" || hosts.contains(*host);
}

std::string token_of(std::string_view authorization) {
    const std::size_t blank = std::min(authorization.find(' '), authorization.size());
    const std::string scheme = lower(authorization.substr(0, blank));
    const std::size_t begin =
        std::min(authorization.find_first_not_of(' ', blank), authorization.size());
    const std::string_view value = authorization.substr(begin);
    if (scheme == "bearer") {
        return std::string(value);
    }
    if (scheme == "basic") {
        const std::string pair = security::from_base64(value).value_or("");
        const std::size_t colon = pair.find(':');
        return colon == pair.npos ? "" : pair.substr(colon + 1);
    }
    return "";
}

std::variant<Peer, Refusal> Guard::identify(const Client& client, const RequestHead& head) const {
    const bool proves_by_token = !head.authorization.empty() && credentials_.token;
    if (!proves_by_token && client.proven) {
        return *client.proven;
    }
    if (!credentials_.token) {
        return refuse(403, client.objection, "has proved nothing");
    }
    if (!proves_by_token) {
        return want_token(
            "this daemon wants a token of the role observer (regroup token --role=observer): as "
            "Authorization: Bearer TOKEN, or as a password with any user name");
    }
    const Result<security::Token> shown = security::Token::parse(token_of(head.authorization));
    if (!shown) {
        return want_token("the field Authorization has no token of regroup", "showed no token");
    }
    const security::Scope& scope = shown->scope();
    if (scope.role != security::Role::observer && !client.is_secured && !client.is_here) {
        return refuse(
            403,
            "a token of the role " + std::string(to_string(scope.role)) +
                " must not cross the network unencrypted; show one of the role observer "
                "(regroup token --role=observer), or connect from the daemon's host or "
                "by TLS, and replace this token",
            "sent a token of the role " + std::string(to_string(scope.role)) + " unencrypted");
    }
    const std::optional<security::Token> own = credentials_.token->named(shown->identity());
    if (!own || !(own->key() == shown->key())) {
        return want_token("the token is not one of this daemon", "showed a wrong token");
    }
    return peer_of(*own);
}

std::variant<Peer, Refusal> Guard::judge(const Client& client, const RequestHead& head,
                                         bool is_public) const {
    using Method = RequestHead::Method;
    if (!head.has_one_host) {
        return refuse(400, "the request needs exactly one field Host");
    }
    if (!is_own_host(head.host, hosts_)) {
        const std::string name = printable(head.host.substr(0, kShownBytes));
        return refuse(421,
                      "this daemon does not go by the name " + name +
                          "; use its address, or start it with regroup serve --http-host=NAME",
                      "asked for the host " + name);
    }
    if (std::string why = objection_to_origin(client, head); !why.empty()) {
        return refuse(403, why, "was refused: " + why);
    }
    if (head.method == Method::other) {
        Refusal refusal = refuse(405, "only GET and HEAD are served here");
        refusal.answer.fields["Allow"] = "GET, HEAD";
        return refusal;
    }
    if (is_public && head.method != Method::post) {
        return client.proven.value_or(Peer{{security::Role::observer, {}}, "anybody"});
    }
    std::variant<Peer, Refusal> judged = identify(client, head);
    const auto* peer = std::get_if<Peer>(&judged);
    if (peer == nullptr || head.method != Method::post) {
        return judged;
    }
    // The user of a connection proves nothing here: a page of another site runs as that user, too.
    const bool has_secret =
        client.is_secured || (!head.authorization.empty() && credentials_.token);
    if (!has_secret && credentials_.token) {
        return want_token(
            "an action takes a token of the role operator (regroup token --role=operator) as "
            "Authorization: Bearer TOKEN");
    }
    if (!has_secret) {
        return refuse(403,
                      "an action takes a token or a certificate of the role operator, and this "
                      "daemon has no token; use regroup drain or regroup stop");
    }
    if (!security::may_operate(peer->scope.role)) {
        return refuse(403, "the " + peer->name +
                               " may only read the status; an action takes the role operator");
    }
    if (lower(head.content_type.substr(0, head.content_type.find(';'))) != "application/json") {
        return refuse(415, "an action takes a body of the type application/json");
    }
    return judged;
}

}  // namespace regroup::http
