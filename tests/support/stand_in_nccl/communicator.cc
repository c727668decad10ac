// SPDX-License-Identifier: Apache-2.0
#include "tests/support/stand_in_nccl/communicator.h"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <poll.h>

#include "tests/support/stand_in_nccl/journal.h"

using namespace stand_in_nccl;

namespace {

std::atomic<int> communicators = 0;

/// Keeps every communicator, so that leak checkers find them.
void remember(ncclComm_t comm) {
    static std::mutex mutex;
    static auto& all = *new std::vector<ncclComm_t>;
    const std::lock_guard lock(mutex);
    all.push_back(comm);
}

void rest() {
    (void)::poll(nullptr, 0, 1);
}

}  // namespace

ncclComm::ncclComm(std::string hub_in, bool blocking_in)
    : number(++communicators), hub(std::move(hub_in)), blocking(blocking_in) {
    remember(this);
}

ncclResult_t ncclComm::begin_job(std::function<ncclResult_t()> body) {
    if (blocking) {
        return body();
    }
    job_state = ncclInProgress;
    join_job();
    job_ = std::thread([this, work = std::move(body)] { job_state = work(); });
    return ncclInProgress;
}

void ncclComm::join_job() {
    if (job_.joinable()) {
        job_.join();
    }
}

ncclResult_t ncclComm::connect(const std::atomic<bool>& stop) {
    if (faults().init_never && faults().concerns(rank)) {
        hang(stop);
        return ncclInternalError;
    }
    for (std::uint32_t channel = 0; channel < lines_.size(); ++channel) {
        lines_[channel].reset(Line::connect(hub));
        if (!lines_[channel]) {
            return ncclSystemError;
        }
        lines_[channel]->write({.kind = FrameKind::join,
                                .rank = rank,
                                .world_size = world_size,
                                .channel = channel,
                                .child = child},
                               nullptr, 0);
    }
    for (const auto& line : lines_) {
        Message message;
        if (!line->read(message, &stop)) {
            return stop ? ncclInternalError : ncclRemoteError;
        }
        if (message.frame.kind != FrameKind::welcome) {
            return ncclRemoteError;
        }
    }
    profiler.begin("stand-in", std::hash<std::string>()(hub + "/" + std::to_string(child)),
                   world_size, rank);
    return ncclSuccess;
}

ProfiledKernel ncclComm::profile(const std::vector<Operation>& operations) const {
    std::vector<ProfiledOperation> profiled;
    for (const Operation& operation : operations) {
        profiled.push_back(operation.profiled);
    }
    return profiler.enqueue(profiled);
}

ncclResult_t ncclComm::enqueue(std::vector<Operation> operations, StandInStream* stream) {
    const Faults wanted = faults();
    if (++launches_ == wanted.launch_never_at && wanted.concerns(rank)) {
        hang(abort_flag);
        return ncclInternalError;
    }
    const bool is_captured = stream->is_captured(stream) && profiler.tells_of_replays();
    ProfiledKernel kernel = is_captured ? ProfiledKernel{} : profile(operations);
    closures_.push_back({this, std::move(operations), is_captured, std::move(kernel)});
    stream->enqueue(
        stream,
        [](void* argument) {
            const auto* const self = static_cast<Closure*>(argument);
            self->comm->run(*self);
        },
        &closures_.back());
    return ncclSuccess;
}

void ncclComm::run(const Closure& closure) {
    const std::vector<Operation>& operations = closure.operations;
    ++running_;
    {
        const std::lock_guard lock(stream_mutex_);
        ProfiledKernel kernel = closure.is_captured ? profile(operations) : closure.kernel;
        profiler.begin_kernel(kernel);
        const Faults wanted = faults();
        const int first = operations_ + 1;
        operations_ += static_cast<int>(operations.size());
        const auto hits = [&](int at) {
            return wanted.concerns(rank) && at >= first && at <= operations_;
        };
        if (hits(wanted.op_never_at)) {
            hang(abort_flag);
        } else if (hits(wanted.async_error_at) || hits(wanted.system_error_at)) {
            async_error = hits(wanted.async_error_at) ? ncclRemoteError : ncclSystemError;
            hang(abort_flag);
        } else if (!abort_flag && !exchange(operations) && !abort_flag) {
            // As on a GPU: the kernel hangs until the caller asks for the error and aborts.
            async_error = ncclRemoteError;
            hang(abort_flag);
        }
        if (!abort_flag) {
            profiler.end_kernel(kernel);
        }
    }
    --running_;
}

void ncclComm::hang(const std::atomic<bool>& stop) {
    while (!stop) {
        rest();
    }
}

bool ncclComm::exchange(const std::vector<Operation>& operations) {
    std::map<std::uint64_t, const Operation*> expected;
    for (const Operation& operation : operations) {
        std::vector<std::byte> payload(operation.input_bytes);
        if (!payload.empty()) {
            std::memcpy(payload.data(), operation.input, payload.size());
        }
        if (!operation.factor.empty()) {
            scale(operation.dtype, payload.data(), operation.count, operation.factor.data());
        }
        expected[++sequence_] = &operation;
        if (!lines_[0]->write({.kind = operation.kind,
                               .op = operation.op,
                               .dtype = operation.dtype,
                               .reduction = operation.reduction,
                               .root = operation.root,
                               .count = operation.count,
                               .sequence = sequence_},
                              payload.data(), payload.size())) {
            return false;
        }
    }
    while (!expected.empty()) {
        Message message;
        if (!lines_[0]->read(message, &abort_flag) || message.frame.kind != FrameKind::result) {
            return false;
        }
        const Operation* const operation = expected[message.frame.sequence];
        if (operation->output != nullptr && !message.payload.empty()) {
            std::memcpy(operation->output, message.payload.data(), message.payload.size());
        }
        expected.erase(message.frame.sequence);
    }
    return true;
}

ncclResult_t ncclComm::split(int color, int key, ncclComm_t* into) {
    ncclComm_t made = nullptr;
    const ncclResult_t result = make_child(color, key, made);
    if (result != ncclSuccess && made == nullptr) {
        // As NCCL, which writes the error into the child that a rank without a color has not.
        std::abort();
    }
    *into = made;
    return result;
}

ncclResult_t ncclComm::make_child(int color, int key, ncclComm_t& made) {
    if (color != NCCL_SPLIT_NOCOLOR) {
        made = new ncclComm(hub, blocking);
    }
    Message message;
    if (!lines_[1]->write({.kind = FrameKind::split, .root = color, .rank = key}, nullptr, 0) ||
        !lines_[1]->read(message, &abort_flag) || message.frame.kind != FrameKind::result) {
        return abort_flag ? ncclInternalError : ncclRemoteError;
    }
    if (made == nullptr) {
        return ncclSuccess;
    }
    made->child = message.frame.child;
    made->rank = message.frame.rank;
    made->world_size = message.frame.world_size;
    const ncclResult_t result = made->connect(abort_flag);
    if (result == ncclSuccess) {
        note("child comm=" + std::to_string(made->number) + " of=" + std::to_string(number));
    }
    return result == ncclSuccess && faults().split_error ? ncclSystemError : result;
}

void ncclComm::await_graphs() const {
    while (faults().graph_alive && faults().concerns(rank)) {
        rest();
    }
}

void ncclComm::say_goodbye() {
    while (running_ > 0) {
        rest();
    }
    for (const auto& line : lines_) {
        if (line) {
            line->write({.kind = FrameKind::leave}, nullptr, 0);
        }
    }
    await_graphs();
}

void ncclComm::close() {
    join_job();
    await_graphs();
    while (running_ > 0) {
        rest();
    }
    for (auto& line : lines_) {
        line.reset();
    }
    profiler.end();
    freed = true;
}
