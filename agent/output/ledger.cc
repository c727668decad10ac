// SPDX-License-Identifier: Apache-2.0
#include "agent/output/ledger.h"

#include <cerrno>
#include <chrono>
#include <cmath>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "rendezvous/files/own_file.h"
#include "rendezvous/files/unique_fd.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/text/describe.h"

namespace regroup::agent {

namespace {

double milliseconds(Duration duration) {
    return std::round(std::chrono::duration<double, std::micro>(duration).count()) / 1000;
}

}  // namespace

std::string ledger_line(const std::string& job, const rendezvous::Incident& incident,
                        const std::string& time) {
    nlohmann::ordered_json line;
    line["time"] = time;
    line["job"] = job;
    line["round"] = number(incident.round);
    line["next_round"] = number(incident.next_round);
    line["planned"] = incident.planned;
    line["cut_short"] = incident.cut_short;
    line["cause"] = describe(incident.cause);
    line["decision"] = describe(incident.decision);
    line["step"] = incident.step;
    line["lost_steps"] = incident.lost_steps;
    line["lost_at_least"] = incident.lost_at_least;
    line["total_ms"] = milliseconds(incident.total());
    line["detect_ms"] = milliseconds(incident.detect);
    line["decide_ms"] = milliseconds(incident.decide);
    line["stop_ms"] = milliseconds(incident.stop);
    line["join_ms"] = milliseconds(incident.join);
    line["communicator_ms"] = milliseconds(incident.communicator);
    line["state_ms"] = milliseconds(incident.state);
    line["first_step_ms"] = milliseconds(incident.first_step);
    return ascii_json_text(line);
}

Result<void> Ledger::append(const std::string& line) {
    const Result<UniqueFd> file =
        files::open_own(file_.string(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (!file) {
        return Failure(file.error().code,
                       "cannot write " + file_.string() + ": " + file.error().detail);
    }
    struct stat before{};
    if (::fstat(file->get(), &before) != 0) {
        return system_failure("cannot write " + file_.string(), errno);
    }
    return files::append_whole(file->get(), file_.string(), before.st_size, line + "\n");
}

}  // namespace regroup::agent
