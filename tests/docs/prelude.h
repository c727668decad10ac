// SPDX-License-Identifier: Apache-2.0
// The names that fragments of the documentation use without declaring them. Fragments of pages are
// compiled in the namespace `pages`, those of the public headers in the namespace `headers`.
#pragma once

#include <regroup/regroup.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pages {

inline constexpr std::uint64_t kSteps = 600;
inline constexpr std::uint64_t kBatch = 64;
inline constexpr std::uint64_t kSamples = kSteps * kBatch;

extern const regroup::Context context;
extern const std::unique_ptr<regroup::ProcessGroup> group;
extern regroup::ElasticLoop loop;
extern regroup::ElasticStep& step;
extern const regroup::ElasticRound& round;
extern regroup::DistributedSampler sampler;
extern regroup::FusedOptimizer& optimizer;

extern std::vector<double> weights;
extern std::vector<float> gradients;
extern std::vector<float> mine;
extern std::vector<float> theirs;
extern const std::uint32_t next;
extern const std::uint32_t previous;
extern std::uint64_t round_number;
extern std::uint32_t local_rank;

void compute_something_else();
void save(std::uint64_t step_number);

}  // namespace pages

namespace headers {

extern regroup::ProcessGroup& group;
extern regroup::DistributedDataParallel& ddp;
extern regroup::FusedOptimizer& optimizer;
extern regroup::ShardedOptimizer& sharded;

extern std::vector<float> weights;
void train(std::uint64_t step, std::span<float> weights);

extern const regroup::TensorView mine;
extern const regroup::TensorView theirs;
extern const std::uint32_t next;
extern const std::uint32_t previous;

}  // namespace headers
