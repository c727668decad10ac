// SPDX-License-Identifier: Apache-2.0
//
// The objects behind the handles of mpi.h. C callers have no object to pass, so the session of this
// process is global state; it is accessed through `session()` only.
#pragma once

#include <regroup/context.h>
#include <regroup/process_group.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker_sdk/mpi/arguments.h"
#include "worker_sdk/mpi/mpi.h"

namespace regroup::mpi {

struct Communicator {
    std::unique_ptr<ProcessGroup> group;
    std::string name;
    std::uint32_t children = 0;  ///< Created from it so far; the same on all its ranks.
    bool errors_return = false;
};

/// From MPI_Init to MPI_Finalize.
class Session {
   public:
    /// Forms MPI_COMM_WORLD. Throws Error.
    Session();

    [[nodiscard]] const Context& context() const { return context_; }
    /// The communicator behind a handle. Throws CallError MPI_ERR_COMM.
    [[nodiscard]] Communicator& communicator(MPI_Comm handle);
    /// Adds a communicator and returns its handle.
    MPI_Comm add(std::unique_ptr<Communicator> communicator);
    /// Throws CallError MPI_ERR_COMM.
    void free(MPI_Comm handle);

   private:
    Context context_ = Context::from_environment();
    Communicator world_;
    Communicator self_;
    std::vector<std::unique_ptr<Communicator>> others_;
};

/// Throws CallError MPI_ERR_OTHER before MPI_Init and after MPI_Finalize.
[[nodiscard]] Session& session();

enum class Stage : std::uint8_t { before, running, after };
[[nodiscard]] Stage stage() noexcept;
void begin_session();
/// Waits for all ranks first.
void end_session();

/// Carries out a call of mpi.h. An exception of `body` ends this process by default; if
/// `communicator` (may be null) returns errors, it becomes an error code.
int carry_out(const char* function, MPI_Comm communicator, const std::function<void()>& body);
[[nodiscard]] inline int carry_out(const char* function, const std::function<void()>& body) {
    return carry_out(function, MPI_COMM_NULL, body);
}

/// Prints the rank of this process and the sentence, and ends the process with `code`, without
/// clean-up: the peers must see at once that this rank is gone.
[[noreturn]] void end_process(const std::string& sentence, int code);

/// The sentence of the last error that a call returned on this thread; empty if there was none.
[[nodiscard]] const std::string& last_sentence();

/// Throws CallError with this code if the group has no such rank.
[[nodiscard]] std::uint32_t rank_in(const ProcessGroup& group, int rank, int error_code);

}  // namespace regroup::mpi
