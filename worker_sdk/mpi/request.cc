// SPDX-License-Identifier: Apache-2.0
// mpi.h: waiting for operations.
#include "worker_sdk/mpi/request.h"

#include <algorithm>
#include <utility>

namespace regroup::mpi {
namespace {

/// Takes the request from the program. A null request counts as finished, as in MPI.
void finish(MPI_Request* handle, MPI_Status* status) {
    const Request request(std::exchange(*handle, MPI_REQUEST_NULL));
    give(request ? request->finish() : empty_status(), status);
}

MPI_Comm comm_of(const MPI_Request* request) {
    return request != nullptr && *request != nullptr ? (*request)->comm : MPI_COMM_NULL;
}

/// The first of the requests of a call, whose communicator says what becomes of an error.
MPI_Comm comm_of(int count, const MPI_Request* requests) {
    for (int i = 0; requests != nullptr && i < count; ++i) {
        if (requests[i] != MPI_REQUEST_NULL) {
            return requests[i]->comm;
        }
    }
    return MPI_COMM_NULL;
}

MPI_Status* status_at(MPI_Status* statuses, int index) {
    return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[index];
}

bool is_done(const MPI_Request& request) {
    return request == MPI_REQUEST_NULL || request->done();
}

/// The first request of the program that is complete; MPI_UNDEFINED if none is, with `any` false if
/// there is none at all.
struct Search {
    int index = MPI_UNDEFINED;
    bool any = false;
};

Search find_done(int count, const MPI_Request* requests) {
    Search search;
    for (int i = 0; i < count && search.index == MPI_UNDEFINED; ++i) {
        if (requests[i] != MPI_REQUEST_NULL) {
            search.any = true;
            search.index = requests[i]->done() ? i : MPI_UNDEFINED;
        }
    }
    return search;
}

void require_requests(int count, const MPI_Request* requests) {
    if (count_of(count) > 0) {
        require_pointer(requests, "requests");
    }
}

}  // namespace

MPI_Status empty_status() {
    return {.MPI_SOURCE = MPI_ANY_SOURCE,
            .MPI_TAG = MPI_ANY_TAG,
            .MPI_ERROR = MPI_SUCCESS,
            .regroup_bytes = 0};
}

MPI_Status SendRequest::finish() {
    session().wait(sent_.work);
    return empty_status();
}

MPI_Status ReceiveRequest::finish() {
    if (!receive_->message) {
        mailbox_->require_sender(receive_->source);
        session().wait_until([&] { return receive_->message != nullptr; }, mailbox_.get());
    }
    session().wait(receive_->payload);
    return receive_->conclude();
}

bool CompoundRequest::done() const {
    return work.done() && std::all_of(parts.begin(), parts.end(),
                                      [](const Request& part) { return part->done(); });
}

MPI_Status CompoundRequest::finish() {
    for (const Request& part : parts) {
        part->finish();
    }
    session().wait(work);
    if (conclude) {
        conclude();
    }
    return status;
}

}  // namespace regroup::mpi

using namespace regroup::mpi;

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
    return carry_out(__func__, comm_of(request), [&] {
        require_pointer(request, "request");
        finish(request, status);
    });
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
    for (int i = 0; i < count; ++i) {
        const int code = MPI_Wait(&requests[i], status_at(statuses, i));
        if (code != MPI_SUCCESS) {
            return code;
        }
    }
    return MPI_SUCCESS;
}

int MPI_Waitany(int count, MPI_Request requests[], int* index, MPI_Status* status) {
    return carry_out(__func__, comm_of(count, requests), [&] {
        require_requests(count, requests);
        require_pointer(index, "index");
        Search found = find_done(count, requests);
        if (found.any) {
            session().wait_until([&] {
                found = find_done(count, requests);
                return found.index != MPI_UNDEFINED;
            });
        }
        *index = found.index;
        if (found.any) {
            finish(&requests[found.index], status);
        } else {
            give(empty_status(), status);
        }
    });
}

int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
    return carry_out(__func__, comm_of(request), [&] {
        require_pointer(request, "request");
        require_pointer(done, "done");
        session().advance();
        *done = is_done(*request) ? 1 : 0;
        if (*done != 0) {
            finish(request, status);
        }
    });
}

int MPI_Testall(int count, MPI_Request requests[], int* done, MPI_Status statuses[]) {
    return carry_out(__func__, comm_of(count, requests), [&] {
        require_requests(count, requests);
        require_pointer(done, "done");
        session().advance();
        *done = std::all_of(requests, requests + count, is_done) ? 1 : 0;
        for (int i = 0; *done != 0 && i < count; ++i) {
            finish(&requests[i], status_at(statuses, i));
        }
    });
}

int MPI_Testany(int count, MPI_Request requests[], int* index, int* done, MPI_Status* status) {
    return carry_out(__func__, comm_of(count, requests), [&] {
        require_requests(count, requests);
        require_pointer(index, "index");
        require_pointer(done, "done");
        session().advance();
        const Search found = find_done(count, requests);
        *index = found.index;
        *done = !found.any || found.index != MPI_UNDEFINED ? 1 : 0;
        if (found.index != MPI_UNDEFINED) {
            finish(&requests[found.index], status);
        } else if (!found.any) {
            give(empty_status(), status);
        }
    });
}
