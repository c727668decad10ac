// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/mpi/session.h"

#include <regroup/error.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <poll.h>

#include "rendezvous/base/printable.h"

namespace regroup::mpi {
namespace {

/// MPI has no time-outs, but the SDK never waits without a limit. A receive may be posted for as
/// long as the job runs. The death of a rank is detected at once in any case.
constexpr std::chrono::hours kLimit(24 * 365);

/// A rank that ends because of another rank's death waits this long, so that the launcher sees the
/// first failure first, which gives the job its exit code. The launcher ends this process in the
/// meantime.
constexpr int kGiveWayMs = 1000;

/// Never destroyed: at exit() without MPI_Finalize, the peers must see the connections break.
struct Global {
    std::unique_ptr<Session> session;
    Stage stage = Stage::before;
};

Global& global() {
    static auto* const instance = new Global;
    return *instance;
}

thread_local std::string last_error_sentence;

/// Writes to stderr, after the output of the program.
void say(const std::string& sentence) {
    std::string who;
    if (global().stage == Stage::running) {
        const Context& context = global().session->context();
        who = "rank " + std::to_string(context.rank) + " of " + std::to_string(context.world_size) +
              ": ";
    }
    std::fflush(nullptr);
    std::fprintf(stderr, "regroup_mpi: %s%s\n", who.c_str(), printable(sentence).c_str());
}

int code_of(const Error& error) {
    return error.code() == Errc::invalid_argument ? MPI_ERR_ARG : MPI_ERR_OTHER;
}

bool errors_return(MPI_Comm handle) {
    try {
        return session().communicator(handle).errors_return;
    } catch (const CallError&) {
        return false;
    }
}

enum class Blame : std::uint8_t { ours, another_rank };

int fail(const char* function, MPI_Comm handle, int code, const char* what,
         Blame blame = Blame::ours) {
    const std::string sentence = std::string(function) + ": " + what;
    if (!errors_return(handle)) {
        say(sentence);
        if (blame == Blame::another_rank) {
            (void)::poll(nullptr, 0, kGiveWayMs);
        }
        std::_Exit(EXIT_FAILURE);
    }
    last_error_sentence = sentence;
    return code;
}

}  // namespace

Session::Session() {
    ProcessGroupOptions options;
    options.name = "mpi";
    options.timeout = kLimit;
    world_ = {.group = ProcessGroup::create("cpu", context_, options), .name = "mpi"};
    self_ = {.group = ProcessGroup::create("cpu", Context(), options), .name = "mpi-self"};
}

Communicator& Session::communicator(MPI_Comm handle) {
    if (handle == MPI_COMM_WORLD) {
        return world_;
    }
    if (handle == MPI_COMM_SELF) {
        return self_;
    }
    for (const auto& other : others_) {
        if (reinterpret_cast<MPI_Comm>(other.get()) == handle) {
            return *other;
        }
    }
    throw CallError(MPI_ERR_COMM, handle == MPI_COMM_NULL
                                      ? "the communicator is MPI_COMM_NULL"
                                      : "the communicator does not exist, or was freed");
}

MPI_Comm Session::add(std::unique_ptr<Communicator> communicator) {
    others_.push_back(std::move(communicator));
    return reinterpret_cast<MPI_Comm>(others_.back().get());
}

void Session::free(MPI_Comm handle) {
    const Communicator& found = communicator(handle);
    if (&found == &world_ || &found == &self_) {
        throw CallError(MPI_ERR_COMM, "MPI_COMM_WORLD and MPI_COMM_SELF cannot be freed");
    }
    std::erase_if(others_, [&](const auto& other) { return other.get() == &found; });
}

Stage stage() noexcept {
    return global().stage;
}

Session& session() {
    if (global().stage != Stage::running) {
        throw CallError(MPI_ERR_OTHER, global().stage == Stage::before
                                           ? "called before MPI_Init"
                                           : "called after MPI_Finalize");
    }
    return *global().session;
}

void begin_session() {
    if (global().stage != Stage::before) {
        throw CallError(MPI_ERR_OTHER, "MPI can be initialised once only");
    }
    global().session = std::make_unique<Session>();
    global().stage = Stage::running;
}

void end_session() {
    session().communicator(MPI_COMM_WORLD).group->barrier().wait();
    global().stage = Stage::after;
    global().session.reset();
}

int carry_out(const char* function, MPI_Comm communicator, const std::function<void()>& body) {
    try {
        body();
        return MPI_SUCCESS;
    } catch (const CallError& error) {
        return fail(function, communicator, error.code(), error.what());
    } catch (const Error& error) {
        return fail(function, communicator, code_of(error), error.what(),
                    error.code() == Errc::disconnected ? Blame::another_rank : Blame::ours);
    } catch (const std::bad_alloc&) {
        return fail(function, communicator, MPI_ERR_OTHER, "out of memory");
    }
}

void end_process(const std::string& sentence, int code) {
    say(sentence);
    std::_Exit(code);
}

const std::string& last_sentence() {
    return last_error_sentence;
}

std::uint32_t rank_in(const ProcessGroup& group, int rank, int error_code) {
    if (rank < 0 || static_cast<std::uint32_t>(rank) >= group.world_size()) {
        throw CallError(error_code, "rank " + std::to_string(rank) +
                                        " is none of a communicator of " +
                                        std::to_string(group.world_size()));
    }
    return static_cast<std::uint32_t>(rank);
}

}  // namespace regroup::mpi
