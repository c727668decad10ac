// SPDX-License-Identifier: Apache-2.0
// mpi.h: messages between two ranks.
#include <limits>
#include <memory>
#include <utility>

#include "worker_sdk/mpi/datatype.h"
#include "worker_sdk/mpi/session.h"
#include "worker_sdk/mpi/side.h"

/// One message under way. Belongs to the program from its start until MPI_Wait or another function
/// that completes it.
struct regroup_mpi_request {
    regroup::Work work{};
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Status status = {};
};

namespace regroup::mpi {
namespace {

using Request = std::unique_ptr<regroup_mpi_request>;

std::uint32_t tag_of(int tag) {
    if (tag < 0) {
        throw CallError(MPI_ERR_TAG, tag == MPI_ANY_TAG
                                         ? "MPI_ANY_TAG is not available; name the tag"
                                         : "the tag " + std::to_string(tag) + " is negative");
    }
    return static_cast<std::uint32_t>(tag);
}

std::uint32_t peer_of(const ProcessGroup& group, int peer) {
    if (peer == MPI_ANY_SOURCE) {
        throw CallError(MPI_ERR_RANK, "MPI_ANY_SOURCE is not available; name the rank");
    }
    return rank_in(group, peer, MPI_ERR_RANK);
}

MPI_Status status_of(int source, int tag, std::size_t bytes) {
    return {.MPI_SOURCE = source, .MPI_TAG = tag, .MPI_ERROR = MPI_SUCCESS, .regroup_bytes = bytes};
}

/// A message to `peer`, or from it. With MPI_PROC_NULL it is complete at once.
Request start(MPI_Comm comm, const Side& side, int peer, int tag, bool is_send) {
    ProcessGroup& group = *session().communicator(comm).group;
    Work work;
    MPI_Status status = status_of(MPI_PROC_NULL, MPI_ANY_TAG, 0);
    if (peer != MPI_PROC_NULL) {
        const Part part = side.part();
        const std::uint32_t rank = peer_of(group, peer);
        work = is_send ? group.send(moved(part), rank, tag_of(tag))
                       : group.recv(moved(part), rank, tag_of(tag));
        status = status_of(peer, tag, part.bytes);
    }
    return Request(new regroup_mpi_request{std::move(work), comm, status});
}

void finish(const regroup_mpi_request& request, MPI_Status* status) {
    request.work.wait();
    if (status != MPI_STATUS_IGNORE) {
        *status = request.status;
    }
}

/// Takes the request from the program. A null request counts as finished, as in MPI.
void finish(MPI_Request* handle, MPI_Status* status) {
    const Request request(std::exchange(*handle, MPI_REQUEST_NULL));
    finish(request ? *request
                   : regroup_mpi_request{.status = status_of(MPI_ANY_SOURCE, MPI_ANY_TAG, 0)},
           status);
}

MPI_Comm comm_of(const MPI_Request* request) {
    return request != nullptr && *request != nullptr ? (*request)->comm : MPI_COMM_NULL;
}

/// Starts a message, and gives its request to the program.
int begin(const char* function, MPI_Comm comm, const Side& side, int peer, int tag, bool is_send,
          MPI_Request* request) {
    return carry_out(function, comm, [&] {
        require_pointer(request, "request");
        *request = start(comm, side, peer, tag, is_send).release();
    });
}

}  // namespace
}  // namespace regroup::mpi

using namespace regroup::mpi;

int MPI_Send(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    return carry_out(__func__, comm, [&] {
        finish(*start(comm, {buffer, count, type}, to, tag, true), MPI_STATUS_IGNORE);
    });
}

int MPI_Recv(void* buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
             MPI_Status* status) {
    return carry_out(__func__, comm, [&] {
        finish(*start(comm, {buffer, count, type}, from, tag, false), status);
    });
}

int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
    return begin(__func__, comm, {buffer, count, type}, to, tag, true, request);
}

int MPI_Irecv(void* buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request* request) {
    return begin(__func__, comm, {buffer, count, type}, from, tag, false, request);
}

// NOLINTNEXTLINE(readability-function-size): the parameters are those of the standard.
int MPI_Sendrecv(const void* send, int send_count, MPI_Datatype send_type, int to, int send_tag,
                 void* receive, int receive_count, MPI_Datatype receive_type, int from,
                 int receive_tag, MPI_Comm comm, MPI_Status* status) {
    return carry_out(__func__, comm, [&] {
        const Request received =
            start(comm, {receive, receive_count, receive_type}, from, receive_tag, false);
        finish(*start(comm, {send, send_count, send_type}, to, send_tag, true), MPI_STATUS_IGNORE);
        finish(*received, status);
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

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
    return carry_out(__func__, comm_of(request), [&] {
        require_pointer(request, "request");
        finish(request, status);
    });
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
    for (int i = 0; i < count; ++i) {
        const int code = MPI_Wait(
            &requests[i], statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[i]);
        if (code != MPI_SUCCESS) {
            return code;
        }
    }
    return MPI_SUCCESS;
}

int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
    return carry_out(__func__, comm_of(request), [&] {
        require_pointer(request, "request");
        require_pointer(done, "done");
        *done = *request == MPI_REQUEST_NULL || (*request)->work.done() ? 1 : 0;
        if (*done != 0) {
            finish(request, status);
        }
    });
}
