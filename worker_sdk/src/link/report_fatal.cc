// SPDX-License-Identifier: Apache-2.0
#include <regroup/failure.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <unistd.h>

#include "rendezvous/base/printable.h"
#include "worker_sdk/src/link/assigned_context.h"
#include "worker_sdk/src/link/process_link.h"

namespace regroup {
namespace {

struct Way {
    worker_link::FatalKind said;
    int exit_code;
    const char* words;
};

/// The codes of EX_CONFIG, EX_TEMPFAIL and the one after it, which programs do not use by accident.
Way way_of(FatalKind kind) noexcept {
    switch (kind) {
        case FatalKind::retry:
            return {worker_link::FatalKind::retry, 75, "to be tried again"};
        case FatalKind::bad_node:
            return {worker_link::FatalKind::bad_node, 76, "this node is bad"};
        case FatalKind::user_error:
            break;
    }
    return {worker_link::FatalKind::user_error, 78, "trying again cannot help"};
}

/// Attaches if necessary, since a program may find a wrong flag before it reads its Context.
/// nullptr without an agent.
std::shared_ptr<link::AgentLink> link_to_agent() noexcept {
    try {
        static_cast<void>(link::attach_from_environment());
        return link::process_link();
    } catch (const std::exception&) {
        return nullptr;
    }
}

}  // namespace

void report_fatal(FatalKind kind, std::string_view text) noexcept {
    const Way way = way_of(kind);
    if (const auto link = link_to_agent()) {
        link->send(worker_link::Fatal{.kind = way.said, .text = std::string(text)});
    }
    std::fprintf(stderr, "fatal (%s): ", way.words);
    for (const std::string& line : printable_lines(text)) {
        std::fprintf(stderr, "%s\n", line.c_str());
    }
    std::fflush(nullptr);
    ::_exit(way.exit_code);
}

}  // namespace regroup
