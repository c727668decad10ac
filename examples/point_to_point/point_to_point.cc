// SPDX-License-Identifier: Apache-2.0
//
// point_to_point: messages between two ranks, and around all of them.
//
//     regroup run --standalone --nproc-per-node=2 point_to_point
//
// `send` and `recv` are immediate: they begin the transfer and return a Work. To wait for it at
// once makes them blocking. To wait later lets the program continue meanwhile. With `--backend
// nccl` the messages go from GPU to GPU.

#include <regroup/context.h>
#include <regroup/process_group.h>

#include "device_vector.h"
#include "flags.h"

namespace {

using regroup::ProcessGroup;
using regroup::Work;
using Floats = example::DeviceVector<float>;
using Integers = example::DeviceVector<std::int64_t>;

// Rank 0 sends a number to rank 1.
void blocking(ProcessGroup& group) {
    Floats tensor(1, group.device());
    if (group.rank() == 0) {
        tensor.host()[0] += 1.0F;
        tensor.upload();
        group.send(tensor.view(), 1).wait();
    } else if (group.rank() == 1) {
        group.recv(tensor.view(), 0).wait();
        tensor.download();
    }
    if (group.rank() < 2) {
        std::printf("blocking: rank %u has %g\n", group.rank(), double{tensor.host()[0]});
    }
}

// The same without waiting at once. Until wait() returns, the buffer belongs to the transfer.
void immediate(ProcessGroup& group) {
    Floats tensor(1, group.device());
    Work work;
    if (group.rank() == 0) {
        tensor.host()[0] += 2.0F;
        tensor.upload();
        work = group.send(tensor.view(), 1);
    } else if (group.rank() == 1) {
        work = group.recv(tensor.view(), 0);
    } else {
        return;
    }
    double meanwhile = 0.0;
    for (int i = 1; i <= 1000; ++i) {
        meanwhile += 1.0 / i;
    }
    work.wait();
    tensor.download();
    std::printf("immediate: rank %u has %g, and computed %.4f meanwhile\n", group.rank(),
                double{tensor.host()[0]}, meanwhile);
}

// Two messages in flight at once, with different tags. On "cpu" the tag selects the recv, in any
// order. On "nccl" messages arrive in the order in which they were sent.
void tags(ProcessGroup& group) {
    constexpr std::uint32_t kWeights = 1;
    constexpr std::uint32_t kLabels = 2;
    if (group.rank() == 0) {
        Floats weights({0.25F, 0.5F}, group.device());
        Integers labels({7, 8, 9}, group.device());
        const Work first = group.send(weights.view(), 1, kWeights);
        const Work second = group.send(labels.view(), 1, kLabels);
        first.wait();
        second.wait();
    } else if (group.rank() == 1) {
        Floats weights(2, group.device());
        Integers labels(3, group.device());
        if (group.backend() == "nccl") {
            group.recv(weights.view(), 0, kWeights).wait();
            group.recv(labels.view(), 0, kLabels).wait();
        } else {
            group.recv(labels.view(), 0, kLabels).wait();
            group.recv(weights.view(), 0, kWeights).wait();
        }
        weights.download();
        labels.download();
        std::printf("tags: rank 1 has labels %ld %ld %ld and weights %g %g\n", labels.host()[0],
                    labels.host()[1], labels.host()[2], double{weights.host()[0]},
                    double{weights.host()[1]});
    }
}

// Every rank sends to the next and receives from the previous one at the same time. After
// world_size - 1 steps, each rank has seen the initial values of all others.
void ring(ProcessGroup& group) {
    const std::uint32_t next = (group.rank() + 1) % group.world_size();
    const std::uint32_t previous = (group.rank() + group.world_size() - 1) % group.world_size();
    std::int64_t sum = group.rank();
    Integers passing(std::vector{sum}, group.device());
    Integers arriving(1, group.device());
    for (std::uint32_t step = 1; step < group.world_size(); ++step) {
        // Together, since each rank's send needs its neighbour's recv.
        regroup::OperationBatch batch(group);
        const Work sent = group.send(passing.view(), next);
        const Work received = group.recv(arriving.view(), previous);
        batch.start();
        received.wait();
        sent.wait();
        arriving.download();
        sum += arriving.host()[0];
        std::swap(passing, arriving);
    }
    std::printf("ring: rank %u has seen ranks that add up to %ld\n", group.rank(), sum);
}

}  // namespace

int main(int argc, char** argv) {
    std::string backend = "cpu";
    example::Flags flags("point_to_point",
                         "blocking and immediate messages, tags, and a ring of all ranks.");
    example::add_backend(flags, backend);
    return example::run_main(flags, argc, argv, [&](const regroup::Context& context) {
        example::require_ranks(context, 2);
        const auto group = ProcessGroup::create(backend, context);
        blocking(*group);
        immediate(*group);
        tags(*group);
        ring(*group);
        group->barrier().wait();
    });
}
