// SPDX-License-Identifier: Apache-2.0
// Messages, batches, sub-groups, streams, memory, CUDA graphs, data-parallel training.
#include <regroup/distributed_data_parallel.h>

#include <vector>

#include "tests/gpu/checks.h"
#include "tests/gpu/device_values.h"

namespace regroup::gpu {
namespace {

constexpr std::size_t kCount = 100'000;

std::unique_ptr<ProcessGroup> form(const Context& context) {
    auto group = ProcessGroup::create("nccl", context, {.timeout = std::chrono::seconds(60)});
    cuda::set_device(group->device());
    return group;
}

std::vector<float> filled(float value) {
    return std::vector<float>(kCount, value);
}

void exchange_messages(ProcessGroup& group) {
    const std::uint32_t other = 1 - group.rank();
    DeviceValues<float> ball(filled(static_cast<float>(group.rank())), group.device());
    DeviceValues<float> received(kCount, group.device());
    if (group.rank() == 0) {
        group.send(ball.view(), other).wait();
        group.recv(received.view(), other).wait();
    } else {
        group.recv(received.view(), other).wait();
        group.send(ball.view(), other).wait();
    }
    require(received.get() == filled(static_cast<float>(other)), "one by one");
    received.set(filled(-1));
    OperationBatch batch(group);
    const Work sent = group.send(ball.view(), other);
    const Work got = group.recv(received.view(), other);
    batch.start();
    got.wait();
    sent.wait();
    require(received.get() == filled(static_cast<float>(other)), "in a batch");
}

void reduce_premultiplied(ProcessGroup& group) {
    DeviceValues<float> values(filled(2), group.device());
    const double factor = group.rank() == 0 ? 0.5 : 2.0;
    group.all_reduce(values.view(), Reduction::premultiplied_sum(factor)).wait();
    require(values.get() == filled(5), "0.5 * 2 + 2 * 2");
}

void use_sub_groups(ProcessGroup& group) {
    const auto alone = group.new_group({1}, "alone");
    const auto swapped = group.new_group({1, 0}, "swapped");
    require(alone->rank() == (group.rank() == 1 ? 0 : ProcessGroup::kNotAMember), "membership");
    DeviceValues<float> values(filled(static_cast<float>(group.rank())), group.device());
    swapped->broadcast(values.view(), 0).wait();
    require(values.get() == filled(1), "the order of ranks");
}

void use_user_stream(ProcessGroup& group) {
    const OwnStream stream;
    DeviceValues<float> values(filled(1), group.device());
    DeviceValues<float> copy(kCount, group.device());
    group.use_stream({stream.get()});
    (void)group.all_reduce(values.view(), ReduceOp::sum);
    check(cudaMemcpyAsync(copy.data(), values.data(), kCount * sizeof(float),
                          cudaMemcpyDeviceToDevice, stream.get()),
          "cudaMemcpyAsync");
    stream.synchronize();
    require(copy.get() == filled(2), "what follows in the stream");
    group.barrier().wait();
}

void use_memory(ProcessGroup& group) {
    const Buffer buffer = group.allocate(kCount * sizeof(float));
    std::vector<float> host(kCount, 1);
    check(cudaMemcpy(host.data(), buffer.data, buffer.bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    require(host == filled(0), "zeroed");
    group.all_reduce({buffer.data, kCount, DType::float32, group.device()}, ReduceOp::sum).wait();
}

void capture_a_step(ProcessGroup& group) {
    const OwnStream stream;
    group.use_stream({stream.get()});
    DeviceValues<float> first(filled(1), group.device());
    DeviceValues<float> second(filled(1), group.device());
    // Once outside of the capture, so that all connections exist.
    group.all_reduce(first.view(), ReduceOp::avg).wait();
    const Graph graph(stream, [&] {
        (void)group.all_reduce(first.view(), ReduceOp::sum);
        check(cudaMemcpyAsync(second.data(), first.data(), kCount * sizeof(float),
                              cudaMemcpyDeviceToDevice, stream.get()),
              "cudaMemcpyAsync");
        (void)group.all_reduce(second.view(), ReduceOp::sum);
    });
    for (int i = 0; i < 10; ++i) {
        graph.launch(stream);
    }
    stream.synchronize();
    require(first.get() == filled(1024), "the first all_reduce of ten replays");
    require(second.get() == filled(2048), "the second all_reduce of ten replays");
    group.barrier().wait();
}

void train_data_parallel(ProcessGroup& group) {
    const auto mine = static_cast<float>(group.rank());
    DeviceValues<float> weight(filled(mine), group.device());
    DeviceValues<float> gradient(filled(mine), group.device());
    DistributedDataParallel ddp(group, {{weight.view(), gradient.view()}});
    require(weight.get() == filled(0), "the weights of rank 0");
    ddp.reduce_gradients();
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    require(gradient.get() == filled(0.5F), "the mean of the gradients");
}

}  // namespace

bool check_operations(const Context& context) {
    const auto group = form(context);
    bool good = report(context, "send and recv", [&] { exchange_messages(*group); });
    good &= report(context, "premultiplied sum", [&] { reduce_premultiplied(*group); });
    good &= report(context, "sub-groups", [&] { use_sub_groups(*group); });
    good &= report(context, "registered memory", [&] { use_memory(*group); });
    good &= report(context, "the user's stream", [&] { use_user_stream(*group); });
    return good;
}

bool check_graph(const Context& context) {
    const auto group = form(context);
    return report(context, "CUDA graph of a step", [&] { capture_a_step(*group); });
}

bool check_data_parallel(const Context& context) {
    const auto group = form(context);
    return report(context, "DistributedDataParallel", [&] { train_data_parallel(*group); });
}

}  // namespace regroup::gpu
