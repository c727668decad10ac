// SPDX-License-Identifier: Apache-2.0
//
// collectives: every collective operation and every reduction operator, with small numbers to look
// at.
//
//     regroup run --standalone --nproc-per-node=3 collectives
//
// Each line shows the buffers of all ranks, rank 0 first. A rank's number is rank + 1, or a row of
// such numbers.

#include <regroup/context.h>
#include <regroup/main_process.h>
#include <regroup/process_group.h>

#include <array>

#include "flags.h"

namespace {

using regroup::ProcessGroup;
using regroup::ReduceOp;
using Row = std::vector<std::int64_t>;

constexpr std::array kOperators{ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max,
                                ReduceOp::avg};
constexpr std::uint32_t kRoot = 0;

class Demonstration {
   public:
    explicit Demonstration(const regroup::Context& context)
        : context_(context),
          group_(ProcessGroup::create("cpu", context)),
          world_size_(context.world_size),
          mine_(static_cast<std::int64_t>(context.rank) + 1) {}

    void run() {
        whole_buffers();
        rows();
        // Nobody is past this before everybody has come to it.
        group_->barrier().wait();
        regroup::log_main(context_, "barrier passed");
    }

   private:
    // In place: every rank has a buffer of the same size.
    void whole_buffers() {
        Row row = context_.rank == kRoot ? Row{7, 8} : Row{0, 0};
        group_->broadcast(std::span(row), kRoot).wait();
        show("broadcast", row);
        for (const ReduceOp op : kOperators) {
            row = {mine_, -mine_};
            group_->all_reduce(std::span(row), op).wait();
            show("all_reduce " + std::string(to_string(op)), row);
        }
        for (const ReduceOp op : kOperators) {
            row = {mine_, -mine_};
            group_->reduce(std::span(row), op, kRoot).wait();
            show("reduce " + std::string(to_string(op)), row);
        }
    }

    // One side of the operation has a row for every rank.
    void rows() {
        const Row one{mine_};
        Row all(world_size_);
        group_->all_gather(std::span(one), std::span(all)).wait();
        show("all_gather", all);

        all.assign(world_size_, 0);
        group_->gather(std::span(one), std::span(all), kRoot).wait();
        show("gather", all);

        Row received{0};
        group_->scatter(std::span(std::as_const(all)), std::span(received), kRoot).wait();
        show("scatter", received);

        Row many(world_size_);  // 10 * mine_ + the rank that it is for
        for (std::uint32_t i = 0; i < world_size_; ++i) {
            many[i] = 10 * mine_ + i;
        }
        for (const ReduceOp op : kOperators) {
            group_->reduce_scatter(std::span(std::as_const(many)), std::span(received), op).wait();
            show("reduce_scatter " + std::string(to_string(op)), received);
        }

        group_->all_to_all(std::span(std::as_const(many)), std::span(all)).wait();
        show("all_to_all", all);
    }

    void show(const std::string& what, const Row& row) {
        Row all(row.size() * world_size_);
        group_->all_gather(std::span(row), std::span(all)).wait();
        std::string line = what;
        line.resize(std::max<std::size_t>(line.size(), 22), ' ');
        for (std::size_t i = 0; i < all.size(); ++i) {
            const std::size_t column = i % row.size();
            line += (column == 0 ? " [" : " ") + std::to_string(all[i]);
            line += column + 1 == row.size() ? "]" : "";
        }
        regroup::log_main(context_, line);
    }

    const regroup::Context context_;
    const std::unique_ptr<ProcessGroup> group_;
    const std::uint32_t world_size_;
    const std::int64_t mine_;
};

}  // namespace

int main(int argc, char** argv) {
    const example::Flags flags(
        "collectives",
        "shows what every collective and every operator does to the ranks' buffers.");
    return example::run_main(flags, argc, argv,
                             [](const regroup::Context& context) { Demonstration(context).run(); });
}
