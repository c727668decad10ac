// SPDX-License-Identifier: Apache-2.0
//
// collectives: every collective operation and every reduction operator, with small numbers to look
// at.
//
//     regroup run --standalone --nproc-per-node=3 collectives
//
// Each line shows the buffers of all ranks, rank 0 first. A rank's number is rank + 1, or a row of
// such numbers. With `--backend nccl` the buffers are on GPUs.

#include <regroup/context.h>
#include <regroup/main_process.h>
#include <regroup/process_group.h>

#include <array>

#include "device_vector.h"
#include "flags.h"

namespace {

using regroup::ProcessGroup;
using regroup::ReduceOp;
using Row = example::DeviceVector<std::int64_t>;

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
    [[nodiscard]] Row row(std::vector<std::int64_t> values) const {
        return Row(std::move(values), group_->device());
    }
    [[nodiscard]] Row zeros(std::size_t count) const { return Row(count, group_->device()); }

    // In place: every rank has a buffer of the same size.
    void whole_buffers() {
        Row news = context_.rank == kRoot ? row({7, 8}) : row({0, 0});
        group_->broadcast(news.view(), kRoot).wait();
        show("broadcast", news);
        for (const ReduceOp op : kOperators) {
            Row mine = row({mine_, -mine_});
            group_->all_reduce(mine.view(), op).wait();
            show("all_reduce " + std::string(to_string(op)), mine);
        }
        for (const ReduceOp op : kOperators) {
            Row mine = row({mine_, -mine_});
            group_->reduce(mine.view(), op, kRoot).wait();
            show("reduce " + std::string(to_string(op)), mine);
        }
    }

    // One side of the operation has a row for every rank.
    void rows() {
        Row one = row({mine_});
        Row all = zeros(world_size_);
        group_->all_gather(one.view(), all.view()).wait();
        show("all_gather", all);

        Row gathered = zeros(world_size_);
        group_->gather(one.view(), gathered.view(), kRoot).wait();
        show("gather", gathered);

        Row received = zeros(1);
        group_->scatter(gathered.view(), received.view(), kRoot).wait();
        show("scatter", received);

        std::vector<std::int64_t> for_each(world_size_);  // 10 * mine_ + the rank that it is for
        for (std::uint32_t i = 0; i < world_size_; ++i) {
            for_each[i] = 10 * mine_ + i;
        }
        Row many = row(for_each);
        for (const ReduceOp op : kOperators) {
            group_->reduce_scatter(many.view(), received.view(), op).wait();
            show("reduce_scatter " + std::string(to_string(op)), received);
        }

        group_->all_to_all(many.view(), all.view()).wait();
        show("all_to_all", all);
    }

    void show(const std::string& what, Row& row) {
        Row all = zeros(row.size() * world_size_);
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

}  // namespace

int main(int argc, char** argv) {
    std::string backend = "cpu";
    example::Flags flags(
        "collectives",
        "shows what every collective and every operator does to the ranks' buffers.");
    example::add_backend(flags, backend);
    return example::run_main(flags, argc, argv, [&](const regroup::Context& context) {
        Demonstration(backend, context).run();
    });
}
