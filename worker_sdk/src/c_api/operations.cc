// SPDX-License-Identifier: Apache-2.0
// Collectives and messages.
#include <regroup/process_group.h>

#include <span>

#include "worker_sdk/src/c_api/call.h"

using regroup::OperationOptions;
using regroup::ProcessGroup;
using regroup::Work;
using regroup::c_api::Call;
using regroup::c_api::guarded;

namespace {

using Options = regroup_operation_options;

OperationOptions read_options(const Call& call, const Options* options) {
    OperationOptions result;
    if (options == nullptr) {
        return result;
    }
    call.require_size(*options, "options");
    if (options->timeout_ms != 0) {
        result.timeout = call.timeout(options->timeout_ms, {});
    }
    if (options->has_stream != 0) {
        result.stream = {.handle = options->stream};
    }
    return result;
}

/// One count for each rank; none for NULL.
std::span<const std::size_t> read_counts(const ProcessGroup& group, const size_t* counts) {
    return {counts, counts == nullptr ? 0 : group.world_size()};
}

/// Issues an operation, and waits for it if the caller passed no `work`.
regroup_errc issue(const char* function, regroup_group* group, const Options* options,
                   regroup_work** work, const auto& operation) {
    return guarded(function, [&](const Call& call) {
        ProcessGroup& opened = *call(group, "group").value;
        std::unique_ptr<regroup_work> handle;
        if (work != nullptr) {
            *work = nullptr;
            handle = std::make_unique<regroup_work>();
        }
        const Work issued = operation(call, opened, read_options(call, options));
        if (work == nullptr) {
            issued.wait();
        } else {
            handle->value = issued;
            *work = handle.release();
        }
    });
}

// NOLINTNEXTLINE(readability-function-size): the arguments of the C interface, and a name.
regroup_errc reduce_scatter(const char* function, regroup_group* group, const regroup_tensor& input,
                            const regroup_tensor& output, regroup_reduce_op op,
                            const size_t* counts, const Options* options, regroup_work** work) {
    return issue(function, group, options, work, [&](auto& call, auto& opened, const auto& read) {
        return opened.reduce_scatter(call.tensor(input, "input"), call.tensor(output, "output"),
                                     call.reduce_op(op), read_counts(opened, counts), read);
    });
}

regroup_errc broadcast(const char* function, regroup_group* group, const regroup_tensor& buffer,
                       uint32_t root, const Options* options, regroup_work** work) {
    return issue(function, group, options, work, [&](auto& call, auto& opened, const auto& read) {
        return opened.broadcast(call.tensor(buffer, "buffer"), root, read);
    });
}

regroup_errc all_gather(const char* function, regroup_group* group, const regroup_tensor& input,
                        const regroup_tensor& output, const size_t* counts, const Options* options,
                        regroup_work** work) {
    return issue(function, group, options, work, [&](auto& call, auto& opened, const auto& read) {
        return opened.all_gather(call.tensor(input, "input"), call.tensor(output, "output"),
                                 read_counts(opened, counts), read);
    });
}

regroup_errc gather(const char* function, regroup_group* group, const regroup_tensor& input,
                    const regroup_tensor& output, uint32_t root, const Options* options,
                    regroup_work** work) {
    return issue(function, group, options, work, [&](auto& call, auto& opened, const auto& read) {
        return opened.gather(call.tensor(input, "input"), call.tensor(output, "output"), root,
                             read);
    });
}

regroup_errc scatter(const char* function, regroup_group* group, const regroup_tensor& input,
                     const regroup_tensor& output, uint32_t root, const Options* options,
                     regroup_work** work) {
    return issue(function, group, options, work, [&](auto& call, auto& opened, const auto& read) {
        return opened.scatter(call.tensor(input, "input"), call.tensor(output, "output"), root,
                              read);
    });
}

// NOLINTNEXTLINE(readability-function-size): the arguments of the C interface, and a name.
regroup_errc all_to_all(const char* function, regroup_group* group, const regroup_tensor& input,
                        const regroup_tensor& output, const size_t* input_counts,
                        const size_t* output_counts, const Options* options, regroup_work** work) {
    return issue(function, group, options, work, [&](auto& call, auto& opened, const auto& read) {
        if ((input_counts == nullptr) != (output_counts == nullptr)) {
            call.refuse("one of input_counts and output_counts is NULL, and the other is not");
        }
        return opened.all_to_all(call.tensor(input, "input"), call.tensor(output, "output"),
                                 read_counts(opened, input_counts),
                                 read_counts(opened, output_counts), read);
    });
}

regroup_errc barrier(const char* function, regroup_group* group, const Options* options,
                     regroup_work** work) {
    return issue(
        function, group, options, work,
        [&](auto& /*call*/, auto& opened, const auto& read) { return opened.barrier(read); });
}

regroup_errc send(const char* function, regroup_group* group, const regroup_tensor& buffer,
                  uint32_t peer, uint32_t tag, const Options* options, regroup_work** work) {
    return issue(function, group, options, work, [&](auto& call, auto& opened, const auto& read) {
        return opened.send(call.tensor(buffer, "buffer"), peer, tag, read);
    });
}

regroup_errc recv(const char* function, regroup_group* group, const regroup_tensor& buffer,
                  uint32_t peer, uint32_t tag, const Options* options, regroup_work** work) {
    return issue(function, group, options, work, [&](auto& call, auto& opened, const auto& read) {
        return opened.recv(call.tensor(buffer, "buffer"), peer, tag, read);
    });
}

}  // namespace

regroup_errc regroup_all_reduce(regroup_group* group, regroup_tensor buffer, regroup_reduce_op op,
                                regroup_work** work) {
    return issue(__func__, group, nullptr, work, [&](auto& call, auto& opened, const auto& read) {
        return opened.all_reduce(call.tensor(buffer, "buffer"), call.reduce_op(op), read);
    });
}

regroup_errc regroup_all_reduce_with(regroup_group* group, regroup_tensor input,
                                     regroup_tensor output, regroup_reduce_op op,
                                     const Options* options, regroup_work** work) {
    return issue(__func__, group, options, work, [&](auto& call, auto& opened, const auto& read) {
        return opened.all_reduce(call.tensor(input, "input"), call.tensor(output, "output"),
                                 call.reduce_op(op), read);
    });
}

regroup_errc regroup_reduce(regroup_group* group, regroup_tensor buffer, regroup_reduce_op op,
                            uint32_t root, regroup_work** work) {
    return issue(__func__, group, nullptr, work, [&](auto& call, auto& opened, const auto& read) {
        return opened.reduce(call.tensor(buffer, "buffer"), call.reduce_op(op), root, read);
    });
}

regroup_errc regroup_reduce_with(regroup_group* group, regroup_tensor input, regroup_tensor output,
                                 regroup_reduce_op op, uint32_t root, const Options* options,
                                 regroup_work** work) {
    return issue(__func__, group, options, work, [&](auto& call, auto& opened, const auto& read) {
        return opened.reduce(call.tensor(input, "input"), call.tensor(output, "output"),
                             call.reduce_op(op), root, read);
    });
}

regroup_errc regroup_reduce_scatter(regroup_group* group, regroup_tensor input,
                                    regroup_tensor output, regroup_reduce_op op,
                                    regroup_work** work) {
    return reduce_scatter(__func__, group, input, output, op, nullptr, nullptr, work);
}

regroup_errc regroup_reduce_scatter_with(regroup_group* group, regroup_tensor input,
                                         regroup_tensor output, regroup_reduce_op op,
                                         const size_t* counts, const Options* options,
                                         regroup_work** work) {
    return reduce_scatter(__func__, group, input, output, op, counts, options, work);
}

regroup_errc regroup_broadcast(regroup_group* group, regroup_tensor buffer, uint32_t root,
                               regroup_work** work) {
    return broadcast(__func__, group, buffer, root, nullptr, work);
}

regroup_errc regroup_broadcast_with(regroup_group* group, regroup_tensor buffer, uint32_t root,
                                    const Options* options, regroup_work** work) {
    return broadcast(__func__, group, buffer, root, options, work);
}

regroup_errc regroup_all_gather(regroup_group* group, regroup_tensor input, regroup_tensor output,
                                regroup_work** work) {
    return all_gather(__func__, group, input, output, nullptr, nullptr, work);
}

regroup_errc regroup_all_gather_with(regroup_group* group, regroup_tensor input,
                                     regroup_tensor output, const size_t* counts,
                                     const Options* options, regroup_work** work) {
    return all_gather(__func__, group, input, output, counts, options, work);
}

regroup_errc regroup_gather(regroup_group* group, regroup_tensor input, regroup_tensor output,
                            uint32_t root, regroup_work** work) {
    return gather(__func__, group, input, output, root, nullptr, work);
}

regroup_errc regroup_gather_with(regroup_group* group, regroup_tensor input, regroup_tensor output,
                                 uint32_t root, const Options* options, regroup_work** work) {
    return gather(__func__, group, input, output, root, options, work);
}

regroup_errc regroup_scatter(regroup_group* group, regroup_tensor input, regroup_tensor output,
                             uint32_t root, regroup_work** work) {
    return scatter(__func__, group, input, output, root, nullptr, work);
}

regroup_errc regroup_scatter_with(regroup_group* group, regroup_tensor input, regroup_tensor output,
                                  uint32_t root, const Options* options, regroup_work** work) {
    return scatter(__func__, group, input, output, root, options, work);
}

regroup_errc regroup_all_to_all(regroup_group* group, regroup_tensor input, regroup_tensor output,
                                regroup_work** work) {
    return all_to_all(__func__, group, input, output, nullptr, nullptr, nullptr, work);
}

regroup_errc regroup_all_to_all_with(regroup_group* group, regroup_tensor input,
                                     regroup_tensor output, const size_t* input_counts,
                                     const size_t* output_counts, const Options* options,
                                     regroup_work** work) {
    return all_to_all(__func__, group, input, output, input_counts, output_counts, options, work);
}

regroup_errc regroup_barrier(regroup_group* group, regroup_work** work) {
    return barrier(__func__, group, nullptr, work);
}

regroup_errc regroup_barrier_with(regroup_group* group, const Options* options,
                                  regroup_work** work) {
    return barrier(__func__, group, options, work);
}

regroup_errc regroup_send(regroup_group* group, regroup_tensor buffer, uint32_t peer, uint32_t tag,
                          regroup_work** work) {
    return send(__func__, group, buffer, peer, tag, nullptr, work);
}

regroup_errc regroup_send_with(regroup_group* group, regroup_tensor buffer, uint32_t peer,
                               uint32_t tag, const Options* options, regroup_work** work) {
    return send(__func__, group, buffer, peer, tag, options, work);
}

regroup_errc regroup_recv(regroup_group* group, regroup_tensor buffer, uint32_t peer, uint32_t tag,
                          regroup_work** work) {
    return recv(__func__, group, buffer, peer, tag, nullptr, work);
}

regroup_errc regroup_recv_with(regroup_group* group, regroup_tensor buffer, uint32_t peer,
                               uint32_t tag, const Options* options, regroup_work** work) {
    return recv(__func__, group, buffer, peer, tag, options, work);
}
