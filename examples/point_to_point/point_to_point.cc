// SPDX-License-Identifier: Apache-2.0
//
// point_to_point: messages between two ranks, and around all of them.
//
//     regroup run --standalone --nproc-per-node=2 point_to_point
//
// `send` and `recv` are immediate: they begin the transfer and return a Work. Waiting for it right
// away makes them blocking; waiting later lets the program go on meanwhile.

#include <regroup/context.h>
#include <regroup/process_group.h>

#include "flags.h"

namespace {

using regroup::ProcessGroup;
using regroup::Work;

// Rank 0 has a number that rank 1 lacks.
void blocking(ProcessGroup& group) {
    std::vector<float> tensor(1);
    if (group.rank() == 0) {
        tensor[0] += 1.0F;
        group.send(std::span(tensor), 1).wait();
    } else if (group.rank() == 1) {
        group.recv(std::span(tensor), 0).wait();
    }
    if (group.rank() < 2) {
        std::printf("blocking: rank %u has %g\n", group.rank(), double{tensor[0]});
    }
}

// The same without waiting at once. Until wait() returns, the buffer belongs to the transfer.
void immediate(ProcessGroup& group) {
    std::vector<float> tensor(1);
    Work work;
    if (group.rank() == 0) {
        tensor[0] += 2.0F;
        work = group.send(std::span(tensor), 1);
    } else if (group.rank() == 1) {
        work = group.recv(std::span(tensor), 0);
    } else {
        return;
    }
    double meanwhile = 0.0;
    for (int i = 1; i <= 1000; ++i) {
        meanwhile += 1.0 / i;
    }
    work.wait();
    std::printf("immediate: rank %u has %g, and computed %.4f meanwhile\n", group.rank(),
                double{tensor[0]}, meanwhile);
}

// Two messages on their way at once. Each finds its recv by the tag, whatever the order.
void tags(ProcessGroup& group) {
    constexpr std::uint32_t kWeights = 1;
    constexpr std::uint32_t kLabels = 2;
    if (group.rank() == 0) {
        const std::vector<float> weights{0.25F, 0.5F};
        const std::vector<std::int64_t> labels{7, 8, 9};
        const Work first = group.send(std::span(weights), 1, kWeights);
        const Work second = group.send(std::span(labels), 1, kLabels);
        first.wait();
        second.wait();
    } else if (group.rank() == 1) {
        std::vector<float> weights(2);
        std::vector<std::int64_t> labels(3);
        group.recv(std::span(labels), 0, kLabels).wait();
        group.recv(std::span(weights), 0, kWeights).wait();
        std::printf("tags: rank 1 has labels %ld %ld %ld, then weights %g %g\n", labels[0],
                    labels[1], labels[2], double{weights[0]}, double{weights[1]});
    }
}

// Every rank sends to the next and receives from the previous one, both at the same time: after
// world_size - 1 steps each has seen what every other one began with.
void ring(ProcessGroup& group) {
    const std::uint32_t next = (group.rank() + 1) % group.world_size();
    const std::uint32_t previous = (group.rank() + group.world_size() - 1) % group.world_size();
    std::int64_t sum = group.rank();
    std::vector<std::int64_t> passing{group.rank()};
    std::vector<std::int64_t> arriving(1);
    for (std::uint32_t step = 1; step < group.world_size(); ++step) {
        regroup::OperationBatch batch(group);
        const Work sent = group.send(std::span(passing), next);
        const Work received = group.recv(std::span(arriving), previous);
        batch.start();
        received.wait();
        sent.wait();
        sum += arriving[0];
        passing = arriving;
    }
    std::printf("ring: rank %u has seen ranks that add up to %ld\n", group.rank(), sum);
}

}  // namespace

int main(int argc, char** argv) {
    const example::Flags flags("point_to_point",
                               "blocking and immediate messages, tags, and a ring of all ranks.");
    return example::run_main(flags, argc, argv, [](const regroup::Context& context) {
        example::require_ranks(context, 2);
        const auto group = ProcessGroup::create("cpu", context);
        blocking(*group);
        immediate(*group);
        tags(*group);
        ring(*group);
        group->barrier().wait();
    });
}
