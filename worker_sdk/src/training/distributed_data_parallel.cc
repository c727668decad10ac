// SPDX-License-Identifier: Apache-2.0
#include <regroup/distributed_data_parallel.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

namespace regroup {
namespace {

void check_parameters(std::span<const Parameter> parameters, ReduceOp reduction) {
    if (reduction != ReduceOp::avg && reduction != ReduceOp::sum) {
        throw Error(Errc::invalid_argument,
                    "data parallel: the reduction must be avg or sum, not " +
                        std::string(to_string(reduction)));
    }
    for (std::size_t index = 0; index < parameters.size(); ++index) {
        const auto& [value, gradient] = parameters[index];
        if (value.count != gradient.count || value.dtype != gradient.dtype) {
            throw Error(Errc::invalid_argument,
                        "data parallel: parameter " + std::to_string(index) + " has " +
                            std::to_string(value.count) + " " +
                            std::string(to_string(value.dtype)) + " values, but its gradient " +
                            std::to_string(gradient.count) + " of " +
                            std::string(to_string(gradient.dtype)));
        }
    }
}

// What one rank registered, in a form that can be compared across ranks.
using Summary = std::array<std::int64_t, 3>;  // parameters, elements, fingerprint of all shapes

Summary summarise(std::span<const Parameter> parameters, std::span<const TensorView> buffers) {
    std::uint64_t fingerprint = 0xcbf29ce484222325ULL;
    const auto mix = [&fingerprint](const TensorView& view) {
        for (const std::uint64_t part :
             {static_cast<std::uint64_t>(view.count), static_cast<std::uint64_t>(view.dtype)}) {
            fingerprint = (fingerprint ^ part) * 0x100000001b3ULL;
        }
    };
    std::size_t element_count = 0;
    for (const Parameter& parameter : parameters) {
        mix(parameter.value);
        element_count += parameter.value.count;
    }
    mix(TensorView());  // sets the parameters apart from the buffers
    std::ranges::for_each(buffers, mix);
    return {static_cast<std::int64_t>(parameters.size()), static_cast<std::int64_t>(element_count),
            static_cast<std::int64_t>(fingerprint)};
}

// Ranks with different models would mix up each other's gradients, or wait for each other for ever.
void check_same_on_all_ranks(ProcessGroup& group, const Summary& mine) {
    std::vector<Summary> all(group.world_size());
    const ConstTensorView input(mine.data(), mine.size(), DType::int64);
    const TensorView output(all.data(), all.size() * mine.size(), DType::int64);
    group.all_gather(input, output).wait();
    const Summary& first = all.front();
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
        const Summary& other = all[rank];
        if (other != first) {
            const auto describe = [](const Summary& summary) {
                return std::to_string(summary[0]) + " parameters with " +
                       std::to_string(summary[1]) + " elements";
            };
            throw Error(Errc::invalid_argument,
                        "data parallel: rank " + std::to_string(rank) + " registered " +
                            describe(other) + ", rank 0 " + describe(first) +
                            ": every rank must register tensors of the same shapes and dtypes "
                            "in the same order");
        }
    }
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(ProcessGroup& group,
                                                 std::vector<Parameter> parameters,
                                                 std::vector<TensorView> buffers,
                                                 const DataParallelOptions& options)
    : group_(group),
      parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      options_(options),
      plan_(plan_buckets(parameters_, options.bucket_bytes)),
      places_(parameters_.size()),
      ready_(parameters_.size()),
      reductions_(plan_.size()) {
    check_parameters(parameters_, options_.reduction);
    check_same_on_all_ranks(group_, summarise(parameters_, buffers_));
    for (const Parameter& parameter : parameters_) {
        group_.broadcast(parameter.value, 0).wait();
    }
    broadcast_buffers();

    for (std::size_t i = 0; i < plan_.size(); ++i) {
        reductions_[i].gradients.resize(plan_[i].bytes);
        std::size_t offset = 0;
        for (std::size_t index = plan_[i].first; index < plan_[i].last; ++index) {
            places_[index] = {i, offset};
            offset += parameters_[index].gradient.bytes();
        }
    }
    begin_step();
}

DistributedDataParallel::~DistributedDataParallel() {
    if (std::ranges::find(ready_, true) == ready_.end()) {
        return;
    }
    group_.abort("a training step was given up while its gradients were being reduced");
    for (const Reduction& reduction : std::span(reductions_).first(started_count_)) {
        try {
            reduction.work.wait();  // The group may write into our buckets until then.
        } catch (const Error&) {
            continue;  // Nobody is left to hear of it.
        }
    }
}

void DistributedDataParallel::gradient_ready(std::size_t index) {
    if (index >= parameters_.size()) {
        throw Error(Errc::invalid_argument, "data parallel: there is no gradient " +
                                                std::to_string(index) + " among " +
                                                std::to_string(parameters_.size()));
    }
    if (ready_[index]) {
        throw Error(Errc::invalid_argument, "data parallel: gradient " + std::to_string(index) +
                                                " was reported ready twice in one step");
    }
    const TensorView& gradient = parameters_[index].gradient;
    const Place& place = places_[index];
    Reduction& reduction = reductions_[place.bucket];
    if (gradient.bytes() > 0) {
        std::memcpy(reduction.gradients.data() + place.offset, gradient.data, gradient.bytes());
    }
    ready_[index] = true;
    --reduction.missing_count;
    start_complete_buckets();
}

// In the order of the plan, even if a later bucket is complete first: the order in which gradients
// become ready may differ between ranks, the order of collectives may not.
void DistributedDataParallel::start_complete_buckets() {
    while (started_count_ < plan_.size() && reductions_[started_count_].missing_count == 0) {
        const Bucket& bucket = plan_[started_count_];
        Reduction& reduction = reductions_[started_count_];
        const DType dtype = parameters_[bucket.first].gradient.dtype;
        reduction.work = group_.all_reduce(
            TensorView(reduction.gradients.data(), bucket.bytes / item_bytes(dtype), dtype),
            options_.reduction);
        ++started_count_;
    }
}

void DistributedDataParallel::finish_step() {
    const auto missing = std::ranges::find(ready_, false);
    if (missing != ready_.end()) {
        throw Error(Errc::invalid_argument,
                    "data parallel: gradient " + std::to_string(missing - ready_.begin()) +
                        " was not reported ready in this step (" +
                        std::to_string(std::ranges::count(ready_, false)) + " of " +
                        std::to_string(ready_.size()) + " are missing)");
    }
    start_complete_buckets();
    for (const Reduction& reduction : reductions_) {
        reduction.work.wait();
    }
    // Only now, when every bucket has arrived: a step is applied as a whole or not at all.
    for (std::size_t index = 0; index < parameters_.size(); ++index) {
        const TensorView& gradient = parameters_[index].gradient;
        const Place& place = places_[index];
        if (gradient.bytes() > 0) {
            std::memcpy(gradient.data, reductions_[place.bucket].gradients.data() + place.offset,
                        gradient.bytes());
        }
    }
    begin_step();
}

void DistributedDataParallel::begin_step() {
    ready_.assign(parameters_.size(), false);
    started_count_ = 0;
    for (std::size_t i = 0; i < plan_.size(); ++i) {
        reductions_[i].missing_count = plan_[i].last - plan_[i].first;
    }
}

void DistributedDataParallel::reduce_gradients() {
    for (std::size_t index = parameters_.size(); index-- > 0;) {
        gradient_ready(index);
    }
    finish_step();
}

void DistributedDataParallel::broadcast_buffers() {
    for (const TensorView& buffer : buffers_) {
        group_.broadcast(buffer, 0).wait();
    }
}

}  // namespace regroup
