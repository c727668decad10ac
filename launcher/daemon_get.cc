// SPDX-License-Identifier: Apache-2.0
#include "launcher/daemon_get.h"

#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json.hpp>

#include "launcher/json_fields.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/json/json_text.h"

namespace regroup::launcher {

std::string target_of(const std::string& part, const std::string& job) {
    return "/api/v1/" + part + (job.empty() ? "" : "?job=" + rendezvous::escaped(job));
}

std::optional<std::string> refusal_in(const rendezvous::HttpAnswer& answer) {
    constexpr int kOk = 200;
    if (answer.status == kOk) {
        return std::nullopt;
    }
    const std::string error = text(parse_json(answer.body), "error");
    const std::string sentence = printable(answer.body.substr(0, answer.body.find('\n')));
    return !error.empty()      ? error
           : !sentence.empty() ? sentence
                               : "the daemon answers with HTTP " + std::to_string(answer.status);
}

Failure no_daemon(Duration limit, const std::string& trouble) {
    return {Errc::disconnected, "no daemon has answered within " + format_duration(limit) +
                                    (trouble.empty() ? "" : ": " + trouble)};
}

Result<std::string> get_from_daemon(const DaemonAccess& access, const std::string& target) {
    boost::asio::io_context io(1);
    boost::asio::steady_timer deadline(io, access.limit);
    Result<std::string> result = std::string();
    std::string trouble;
    std::optional<rendezvous::HttpClient> client;
    const auto end = [&](Result<std::string> with) {
        result = std::move(with);
        deadline.cancel();
        client->stop(rendezvous::kClientStopLimit, [&io] { io.stop(); });
    };
    rendezvous::HttpClient::Handlers handlers;
    handlers.on_up = [&] {
        trouble = client->peer() +
                  " has accepted the connection and says nothing; is it a regroup daemon?";
        client->get(target);
    };
    handlers.on_down = [] {};
    handlers.on_answer = [&](const rendezvous::HttpAnswer& answer) {
        const std::optional<std::string> refusal = refusal_in(answer);
        end(refusal ? Result<std::string>(Failure(Errc::invalid_argument, *refusal))
                    : Result<std::string>(answer.body));
    };
    handlers.on_trouble = [&](const std::string& reason, bool /*is_answer*/) { trouble = reason; };
    client.emplace(io, access.endpoints, std::move(handlers), access.identity);
    deadline.async_wait([&](boost::system::error_code error) {
        if (!error) {
            end(no_daemon(access.limit, trouble));
        }
    });
    client->start();
    io.run();
    return result;
}

}  // namespace regroup::launcher
