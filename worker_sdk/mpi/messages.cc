// SPDX-License-Identifier: Apache-2.0
// mpi.h: messages between two ranks.
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "worker_sdk/mpi/datatype.h"
#include "worker_sdk/mpi/request.h"
#include "worker_sdk/mpi/session.h"
#include "worker_sdk/mpi/side.h"

namespace regroup::mpi {
namespace {

int tag_to_send(int tag) {
    if (tag < 0) {
        throw CallError(MPI_ERR_TAG, "the tag " + std::to_string(tag) + " is negative");
    }
    return tag;
}

int tag_to_receive(int tag) {
    return tag == MPI_ANY_TAG ? tag : tag_to_send(tag);
}

int source_of(const Communicator& ranks, int source) {
    return source == MPI_ANY_SOURCE ? source
                                    : static_cast<int>(rank_in(ranks, source, MPI_ERR_RANK));
}

MPI_Status status_of_nobody() {
    MPI_Status status = empty_status();
    status.MPI_SOURCE = MPI_PROC_NULL;
    return status;
}

/// To or from MPI_PROC_NULL.
Request message_of_nobody() {
    auto request = std::make_unique<CompoundRequest>();
    request->status = status_of_nobody();
    return request;
}

Request start_send(MPI_Comm comm, const Side& side, int to, int tag) {
    const Communicator& ranks = session().communicator(comm);
    if (to == MPI_PROC_NULL) {
        return message_of_nobody();
    }
    const Part sent = side.part();
    return std::make_unique<SendRequest>(ranks.mail->send(
        sent.data, sent.bytes, rank_in(ranks, to, MPI_ERR_RANK), tag_to_send(tag)));
}

Request start_receive(MPI_Comm comm, const Side& side, int from, int tag) {
    const Communicator& ranks = session().communicator(comm);
    if (from == MPI_PROC_NULL) {
        return message_of_nobody();
    }
    const Part into = side.part();
    return std::make_unique<ReceiveRequest>(
        ranks.mail,
        ranks.mail->post(into.data, into.bytes, source_of(ranks, from), tag_to_receive(tag)));
}

MPI_Status status_of(const Message& message) {
    return {.MPI_SOURCE = static_cast<int>(message.source),
            .MPI_TAG = message.tag,
            .MPI_ERROR = MPI_SUCCESS,
            .regroup_bytes = message.bytes};
}

/// A look for a message that a receive would take.
class Probe {
   public:
    Probe(int source, int tag, MPI_Comm comm)
        : ranks_(session().communicator(comm)),
          source_(source == MPI_PROC_NULL ? source : source_of(ranks_, source)),
          tag_(tag_to_receive(tag)) {}

    /// The status of the message, if it is here.
    std::optional<MPI_Status> look() {
        if (source_ == MPI_PROC_NULL) {
            return status_of_nobody();
        }
        if (!ranks_.mail->find(source_, tag_)) {
            const Mailbox::Interest interest(*ranks_.mail, source_);
            session().advance();
        }
        const auto found = ranks_.mail->find(source_, tag_);
        return found ? std::optional(status_of(*found)) : std::nullopt;
    }

    MPI_Status wait() {
        if (const auto status = look()) {
            return *status;
        }
        ranks_.mail->require_sender(source_);
        const Mailbox::Interest interest(*ranks_.mail, source_);
        std::shared_ptr<Message> found;
        session().wait_until(
            [&] {
                found = ranks_.mail->find(source_, tag_);
                return found != nullptr;
            },
            ranks_.mail.get());
        return status_of(*found);
    }

   private:
    Communicator& ranks_;
    const int source_;
    const int tag_;
};

}  // namespace
}  // namespace regroup::mpi

using namespace regroup::mpi;

int MPI_Send(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    return complete(__func__, comm, start_send, Side{buffer, count, type}, to, tag);
}

int MPI_Recv(void* buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
             MPI_Status* status) {
    return carry_out(__func__, comm, [&] {
        give(start_receive(comm, {buffer, count, type}, from, tag)->finish(), status);
    });
}

int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
    return begin(__func__, comm, request, start_send, Side{buffer, count, type}, to, tag);
}

int MPI_Irecv(void* buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request* request) {
    return begin(__func__, comm, request, start_receive, Side{buffer, count, type}, from, tag);
}

int MPI_Sendrecv(const void* send, int send_count, MPI_Datatype send_type, int to, int send_tag,
                 void* receive, int receive_count, MPI_Datatype receive_type, int from,
                 int receive_tag, MPI_Comm comm, MPI_Status* status) {
    return carry_out(__func__, comm, [&] {
        const Request received =
            start_receive(comm, {receive, receive_count, receive_type}, from, receive_tag);
        start_send(comm, {send, send_count, send_type}, to, send_tag)->finish();
        give(received->finish(), status);
    });
}

int MPI_Probe(int from, int tag, MPI_Comm comm, MPI_Status* status) {
    return carry_out(__func__, comm, [&] { give(Probe(from, tag, comm).wait(), status); });
}

int MPI_Iprobe(int from, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
    return carry_out(__func__, comm, [&] {
        require_pointer(flag, "flag");
        const std::optional<MPI_Status> found = Probe(from, tag, comm).look();
        *flag = found ? 1 : 0;
        if (found) {
            give(*found, status);
        }
    });
}

int MPI_Get_count(const MPI_Status* status, MPI_Datatype type, int* count) {
    return carry_out(__func__, [&] {
        require_pointer(status, "status");
        require_pointer(count, "count");
        const std::size_t bytes = datatype_of(type).bytes;
        const std::size_t elements = status->regroup_bytes / bytes;
        const bool is_whole = status->regroup_bytes % bytes == 0;
        *count = is_whole && elements <= std::numeric_limits<int>::max()
                     ? static_cast<int>(elements)
                     : MPI_UNDEFINED;
    });
}
