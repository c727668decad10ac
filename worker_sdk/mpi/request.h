// SPDX-License-Identifier: Apache-2.0
//
// The operations behind MPI_Request.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "worker_sdk/mpi/session.h"

/// One operation under way. Belongs to the program from its start until MPI_Wait or another
/// function that completes it.
struct regroup_mpi_request {
    regroup_mpi_request() = default;
    virtual ~regroup_mpi_request() = default;
    regroup_mpi_request(const regroup_mpi_request&) = delete;
    regroup_mpi_request& operator=(const regroup_mpi_request&) = delete;

    /// True once `finish` would not block.
    [[nodiscard]] virtual bool done() const = 0;
    /// Blocks until the operation is complete. Once. Throws Error and CallError.
    virtual MPI_Status finish() = 0;

    MPI_Comm comm = MPI_COMM_NULL;
};

namespace regroup::mpi {

using Request = std::unique_ptr<regroup_mpi_request>;

/// The status of an operation that received no message.
[[nodiscard]] MPI_Status empty_status();

/// `to` may be MPI_STATUS_IGNORE.
inline void give(const MPI_Status& from, MPI_Status* to) {
    if (to != MPI_STATUS_IGNORE) {
        *to = from;
    }
}

class SendRequest final : public regroup_mpi_request {
   public:
    explicit SendRequest(Mailbox::Sent sent) : sent_(std::move(sent)) {}
    [[nodiscard]] bool done() const override { return sent_.work.done(); }
    MPI_Status finish() override;

   private:
    Mailbox::Sent sent_;
};

class ReceiveRequest final : public regroup_mpi_request {
   public:
    ReceiveRequest(std::shared_ptr<Mailbox> mailbox, std::shared_ptr<Receive> receive)
        : mailbox_(std::move(mailbox)), receive_(std::move(receive)) {}
    ~ReceiveRequest() override { mailbox_->withdraw(*receive_); }
    [[nodiscard]] bool done() const override { return receive_->done(); }
    MPI_Status finish() override;

   private:
    std::shared_ptr<Mailbox> mailbox_;
    std::shared_ptr<Receive> receive_;
};

/// A collective, or a message from or to MPI_PROC_NULL, which is complete at once.
class CompoundRequest final : public regroup_mpi_request {
   public:
    std::vector<Request> parts{};
    Work work{};
    std::vector<std::byte> scratch{};    ///< For the parts and the work.
    std::function<void()> conclude{};    ///< Called once all of them are complete; may be empty.
    MPI_Status status = empty_status();  ///< Of the whole.

    [[nodiscard]] bool done() const override;
    MPI_Status finish() override;
};

/// Carries out `start`, which returns a Request, and waits for it.
template <class Start, class... Arguments>
int complete(const char* function, MPI_Comm comm, const Start& start,
             const Arguments&... arguments) {
    return carry_out(function, comm, [&] { start(comm, arguments...)->finish(); });
}

/// Carries out `start`, which returns a Request, and gives it to the program.
template <class Start, class... Arguments>
int begin(const char* function, MPI_Comm comm, MPI_Request* request, const Start& start,
          const Arguments&... arguments) {
    return carry_out(function, comm, [&] {
        require_pointer(request, "request");
        auto started = start(comm, arguments...);
        started->comm = comm;
        *request = started.release();
    });
}

}  // namespace regroup::mpi
