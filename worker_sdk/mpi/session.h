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
#include "worker_sdk/mpi/mailbox.h"
#include "worker_sdk/mpi/mpi.h"

/// Some ranks, in an order: their ranks in MPI_COMM_WORLD, by rank.
struct regroup_mpi_group {
    std::vector<std::uint32_t> members;
};

namespace regroup::mpi {

struct Communicator {
    Communicator(std::unique_ptr<ProcessGroup> group_in, std::string name_in,
                 std::vector<std::uint32_t> members_in)
        : name(std::move(name_in)),
          members(std::move(members_in)),
          mail(std::make_shared<Mailbox>(*group_in)),
          group(std::move(group_in)) {}

    std::string name;
    std::vector<std::uint32_t> members;  ///< Their ranks in MPI_COMM_WORLD, by rank.
    std::shared_ptr<Mailbox> mail;       ///< Outlives the group, which writes to its memory.
    std::unique_ptr<ProcessGroup> group;
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
    /// Frees a communicator once the other ranks have freed it too; does not block. Throws
    /// CallError MPI_ERR_COMM.
    void free(MPI_Comm handle);

    /// The group behind a handle. Throws CallError MPI_ERR_GROUP.
    [[nodiscard]] const regroup_mpi_group& group(MPI_Group handle) const;
    /// Adds a group and returns its handle.
    MPI_Group add(regroup_mpi_group group);
    /// Throws CallError MPI_ERR_GROUP.
    void free(MPI_Group handle);

    // Waiting. Receives that the program has posted take in their messages meanwhile, in every
    // communicator: the sender may be blocked until then.

    /// Blocks until `work` is complete, and throws its Error.
    void wait(const Work& work);
    /// Blocks until `done`. If that depends on the envelopes that one mailbox waits for, and on
    /// nothing else, it is given.
    void wait_until(const std::function<bool()>& done, Mailbox* mailbox = nullptr);
    /// Takes in what is here.
    void advance();
    /// Waits for all ranks, which must do nothing else with MPI any more.
    void finish();

   private:
    [[nodiscard]] bool waits_elsewhere(const Mailbox* mailbox) const;
    void go_on_closing();

    Context context_ = Context::from_environment();
    std::unique_ptr<Communicator> world_;
    std::unique_ptr<Communicator> self_;
    std::vector<std::unique_ptr<Communicator>> others_;
    std::vector<std::unique_ptr<Communicator>> closing_;  // Freed; not yet by all ranks.
    std::vector<std::unique_ptr<regroup_mpi_group>> groups_;
    const regroup_mpi_group empty_group_;
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

/// Throws CallError with this code if the communicator has no such rank.
[[nodiscard]] std::uint32_t rank_in(const Communicator& communicator, int rank, int error_code);

}  // namespace regroup::mpi
