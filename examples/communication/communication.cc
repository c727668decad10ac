// SPDX-License-Identifier: Apache-2.0
//
// communication: what the ranks of a job can say to one another. One command for each way:
//
//     regroup run --standalone --nproc-per-node=3 communication collectives
//     regroup run --standalone --nproc-per-node=2 communication point_to_point
//     regroup run --standalone --nproc-per-node=4 communication sub_groups
//     regroup run --standalone --nproc-per-node=5 communication parameter_server --servers 2
//
// The first three are in this file. With `--backend nccl` all buffers are on GPUs.

#include "communication.h"

#include <regroup/context.h>
#include <regroup/error.h>
#include <regroup/main_process.h>
#include <regroup/process_group.h>

#include <array>

#include "device_vector.h"
#include "flags.h"

namespace {

using regroup::ProcessGroup;
using regroup::ReduceOp;
using regroup::Work;
using Floats = example::DeviceVector<float>;
using Integers = example::DeviceVector<std::int64_t>;

// ---------------------------------------------------------------------------------------------------
// collectives: every collective operation and every reduction operator. Each line shows the buffers
// of all ranks, rank 0 first. A rank's number is rank + 1, or a row of such numbers.

constexpr std::array kOperators{ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max,
                                ReduceOp::avg};
constexpr std::uint32_t kRoot = 0;

class Demonstration {
   public:
    Demonstration(const std::string& backend, const regroup::Context& context)
        : context_(context),
          group_(ProcessGroup::create(backend, context)),
          world_size_(context.world_size),
          mine_(static_cast<std::int64_t>(context.rank) + 1) {}

    void run() {
        whole_buffers();
        rows();
        // No rank passes the barrier before all ranks have reached it.
        group_->barrier().wait();
        regroup::log_main(context_, "barrier passed");
    }

   private:
    // In memory that the group's operations can access.
    [[nodiscard]] Integers row(std::vector<std::int64_t> values) const {
        return Integers(std::move(values), group_->device());
    }
    [[nodiscard]] Integers zeros(std::size_t count) const {
        return Integers(count, group_->device());
    }

    // In place: every rank has a buffer of the same size.
    void whole_buffers() {
        Integers news = context_.rank == kRoot ? row({7, 8}) : row({0, 0});
        group_->broadcast(news.view(), kRoot).wait();
        show("broadcast", news);
        for (const ReduceOp op : kOperators) {
            Integers mine = row({mine_, -mine_});
            group_->all_reduce(mine.view(), op).wait();
            show("all_reduce " + std::string(to_string(op)), mine);
        }
        for (const ReduceOp op : kOperators) {
            Integers mine = row({mine_, -mine_});
            group_->reduce(mine.view(), op, kRoot).wait();
            show("reduce " + std::string(to_string(op)), mine);
        }
    }

    // One side of the operation has a row for every rank.
    void rows() {
        Integers one = row({mine_});
        Integers all = zeros(world_size_);
        group_->all_gather(one.view(), all.view()).wait();
        show("all_gather", all);

        Integers gathered = zeros(world_size_);
        group_->gather(one.view(), gathered.view(), kRoot).wait();
        show("gather", gathered);

        Integers received = zeros(1);
        group_->scatter(gathered.view(), received.view(), kRoot).wait();
        show("scatter", received);

        std::vector<std::int64_t> for_each(world_size_);  // 10 * mine_ + the rank that it is for
        for (std::uint32_t i = 0; i < world_size_; ++i) {
            for_each[i] = 10 * mine_ + i;
        }
        Integers many = row(for_each);
        for (const ReduceOp op : kOperators) {
            group_->reduce_scatter(many.view(), received.view(), op).wait();
            show("reduce_scatter " + std::string(to_string(op)), received);
        }

        group_->all_to_all(many.view(), all.view()).wait();
        show("all_to_all", all);
    }

    void show(const std::string& what, Integers& row) {
        Integers all = zeros(row.size() * world_size_);
        group_->all_gather(row.view(), all.view()).wait();
        all.download();
        std::string line = what;
        line.resize(std::max<std::size_t>(line.size(), 22), ' ');
        for (std::size_t i = 0; i < all.size(); ++i) {
            const std::size_t column = i % row.size();
            line += (column == 0 ? " [" : " ") + std::to_string(all.host()[i]);
            line += column + 1 == row.size() ? "]" : "";
        }
        regroup::log_main(context_, line);
    }

    const regroup::Context context_;
    const std::unique_ptr<ProcessGroup> group_;
    const std::uint32_t world_size_;
    const std::int64_t mine_;
};

int collectives(int argc, char** argv) {
    std::string backend = "cpu";
    example::Flags flags(
        "communication collectives",
        "shows what every collective and every operator does to the ranks' buffers.");
    flags.add_backend(backend);
    return example::run_main(flags, argc, argv, [&](const regroup::Context& context) {
        Demonstration(backend, context).run();
    });
}

// ---------------------------------------------------------------------------------------------------
// point_to_point: `send` and `recv` are immediate: they begin the transfer and return a Work. To
// wait for it at once makes them blocking. To wait later lets the program continue meanwhile.

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

int point_to_point(int argc, char** argv) {
    std::string backend = "cpu";
    example::Flags flags("communication point_to_point",
                         "blocking and immediate messages, tags, and a ring of all ranks.");
    flags.add_backend(backend);
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

// ---------------------------------------------------------------------------------------------------
// sub_groups: groups of some of the ranks. All ranks call `new_group`, members or not. Only its
// members communicate in the group.

// The sum of the members' ranks (in the world), on every member.
float sum_of_ranks(ProcessGroup& group, const regroup::Context& context) {
    Floats value(std::vector{static_cast<float>(context.rank)}, group.device());
    group.all_reduce(value.view(), regroup::ReduceOp::sum).wait();
    value.download();
    return value.host()[0];
}

void pair(ProcessGroup& world, const regroup::Context& context) {
    const auto group = world.new_group({0, 1}, "pair");
    if (group->rank() != ProcessGroup::kNotAMember) {
        std::printf("pair: rank %u adds up %g\n", context.rank,
                    double{sum_of_ranks(*group, context)});
        return;
    }
    try {
        (void)sum_of_ranks(*group, context);
    } catch (const regroup::Error& error) {
        std::printf("pair: rank %u is refused: %s\n", context.rank, error.what());
    }
}

// Two groups that share no rank may work at the same time. Each rank is in one of them.
void even_and_odd(ProcessGroup& world, const regroup::Context& context) {
    std::vector<std::uint32_t> even;
    std::vector<std::uint32_t> odd;
    for (std::uint32_t rank = 0; rank < world.world_size(); ++rank) {
        (rank % 2 == 0 ? even : odd).push_back(rank);
    }
    const auto evens = world.new_group(even, "even");
    const auto odds = world.new_group(odd, "odd");
    ProcessGroup& mine = context.rank % 2 == 0 ? *evens : *odds;
    std::printf("%s: rank %u is rank %u of %u, and adds up %g\n",
                context.rank % 2 == 0 ? "even" : "odd", context.rank, mine.rank(),
                mine.world_size(), double{sum_of_ranks(mine, context)});
    // The groups end here. The barrier ensures that all members have finished.
    world.barrier().wait();
}

int sub_groups(int argc, char** argv) {
    std::string backend = "cpu";
    example::Flags flags("communication sub_groups",
                         "groups of some ranks, and what others get of them.");
    flags.add_backend(backend);
    return example::run_main(flags, argc, argv, [&](const regroup::Context& context) {
        example::require_ranks(context, 2);
        const auto world = ProcessGroup::create(backend, context);
        pair(*world, context);
        world->barrier().wait();
        even_and_odd(*world, context);
    });
}

}  // namespace

int main(int argc, char** argv) {
    return example::run_command(
        "communication",
        {{"collectives", "every collective and every operator", collectives},
         {"point_to_point", "send and recv, blocking and immediate, with tags; a ring",
          point_to_point},
         {"sub_groups", "groups of some of the ranks", sub_groups},
         {"parameter_server", "servers share the parameters; workers push and pull",
          parameter_server}},
        argc, argv);
}
