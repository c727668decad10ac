// SPDX-License-Identifier: Apache-2.0
#include "agent/text/cause_text.h"

#include <variant>

#include "rendezvous/base/signal_name.h"
#include "rendezvous/text/describe.h"

namespace regroup::agent {

namespace {

struct CauseText {
    std::string operator()(const ToldByDaemon& cause) const {
        return std::visit([](const auto& reason) { return describe(reason); }, cause.reason);
    }
    std::string operator()(const AskedBySignal& cause) const {
        return "stopped by " + signal_name(cause.signal);
    }
    std::string operator()(const Unhealthy& cause) const {
        return "this node is not healthy: " + cause.fault;
    }
    std::string operator()(const PeersUnreachable& /*cause*/) const {
        return "a worker could not reach its peers";
    }
    std::string operator()(const BoundaryMissed& /*cause*/) const {
        return "this node leaves, and no step boundary was reached in time";
    }
    std::string operator()(const WorkerFailure& failure) const { return describe(failure); }
};

std::string no_rendezvous(const QuitReason& reason, const std::string& within) {
    if (!reason.succeeded) {
        return "no rendezvous was reached" + within;
    }
    return reason.alone ? "the workers have succeeded; no rendezvous was reached" + within
                        : "the workers of this node have succeeded, but no rendezvous was reached" +
                              within + " to learn of the other nodes'";
}

}  // namespace

std::string text_of(const Cause& cause) {
    return std::visit(CauseText{}, cause);
}

std::string text_of(const QuitReason& reason) {
    std::string why = text_of(reason.why);
    const std::string limit = " within " + format_duration(reason.limit);
    switch (reason.cause) {
        case QuitCause::job_closed:
        case QuitCause::missed:
            return "";
        case QuitCause::refused:
            return "refused by the daemon: " + why;
        case QuitCause::no_round:
            return "no round was formed" + limit + " (--join-timeout)";
        case QuitCause::no_rendezvous:
            return no_rendezvous(reason, limit + " (--join-timeout)");
        case QuitCause::unhealthy:
            return why;
        case QuitCause::asked:
            return why + (reason.succeeded ? "; the workers have succeeded" : "");
        case QuitCause::finished:
            return why + (why.empty() ? "" : "; ") + "all workers of this node have finished";
        case QuitCause::drained:
            return "drained: " + why;
        case QuitCause::save_timeout:
            return why + "; the workers did not save their state" + limit +
                   (std::holds_alternative<AskedBySignal>(reason.why) ? " (--shutdown-timeout)"
                                                                      : " (--prepare-timeout)");
        case QuitCause::save_failed:
            return why + "; a worker failed as it saved its state";
        case QuitCause::ended_unsaved:
            return why + "; the round ended before the state was saved";
        case QuitCause::workers_unkillable:
            return std::to_string(reason.workers) +
                   (reason.workers == 1
                        ? " worker did not end even after SIGKILL; it is probably stuck"
                        : " workers did not end even after SIGKILL; they are probably stuck") +
                   " in the kernel";
    }
    return "";
}

}  // namespace regroup::agent
