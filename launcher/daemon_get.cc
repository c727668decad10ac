// SPDX-License-Identifier: Apache-2.0
#include "launcher/daemon_get.h"

#include <cctype>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "launcher/daemon_talk.h"
#include "launcher/json_fields.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/json/json_text.h"

namespace regroup::launcher {

namespace {

/// A part of a target, with percent escapes where they are needed.
std::string escaped(std::string_view text) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    constexpr std::string_view kPlain = "-._~";
    std::string out;
    for (const char letter : text) {
        const auto byte = static_cast<unsigned char>(letter);
        if ((byte < 0x80U && std::isalnum(byte) != 0) || kPlain.find(letter) != kPlain.npos) {
            out += letter;
        } else {
            out += {'%', kDigits[byte >> 4U], kDigits[byte & 0xFU]};
        }
    }
    return out;
}

}  // namespace

std::string target_of(const std::string& part, const std::string& job) {
    return "/api/v1/" + part + (job.empty() ? "" : "?job=" + escaped(job));
}

std::optional<std::string> refusal_in(const rendezvous::HttpAnswer& answer) {
    constexpr unsigned kOk = 200;
    if (answer.status == kOk) {
        return std::nullopt;
    }
    const std::string error = text(parse_json(answer.body), "error");
    const std::string sentence = printable(answer.body.substr(0, answer.body.find('\n')));
    return !error.empty()      ? error
           : !sentence.empty() ? sentence
                               : "the daemon answers with HTTP " + std::to_string(answer.status);
}

Result<std::string> get_from_daemon(const DaemonAccess& access, const std::string& target) {
    DaemonTalk talk(access.limit, Duration::zero());
    std::string body;
    std::optional<rendezvous::HttpClient> client;
    rendezvous::HttpClient::Handlers handlers;
    handlers.on_up = [&] {
        talk.note_silence(client->peer());
        client->get(target);
    };
    handlers.on_down = [] {};
    handlers.on_trouble = [&](const std::string& reason, bool /*is_answer*/) {
        talk.note_trouble(reason);
    };
    handlers.on_answer = [&](const rendezvous::HttpAnswer& answer) {
        const std::optional<std::string> refusal = refusal_in(answer);
        body = answer.body;
        talk.end(refusal ? Result<void>(Failure(Errc::invalid_argument, *refusal))
                         : Result<void>());
    };
    client.emplace(talk.io(), access.endpoints, std::move(handlers), access.identity);
    const Result<void> done = talk.run(*client);
    return done ? Result<std::string>(std::move(body)) : done.error();
}

}  // namespace regroup::launcher
