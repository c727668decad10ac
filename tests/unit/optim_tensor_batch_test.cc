// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "tests/support/matchers.h"
#include "worker_sdk/src/optim/tensor_batch.h"

namespace regroup::optim {
namespace {

constexpr std::size_t kChunk = 100;

struct Tensor {
    int number;
    std::size_t count;
};

/// The launches, and how often each chunk of each tensor has been in one.
struct Seen {
    std::vector<std::size_t> launch_sizes{};
    std::map<std::pair<int, std::size_t>, int> chunks{};

    template <class Batch>
    int operator()(const Batch& batch) {
        launch_sizes.push_back(batch.size);
        for (std::uint32_t chunk = 0; chunk < batch.chunk_count(); ++chunk) {
            const auto [tensor, part] = batch.place_of(chunk);
            EXPECT_LT(part * kChunk, tensor.count);
            ++chunks[{tensor.number, part}];
        }
        return 0;
    }
};

std::vector<Tensor> tensors_of(int count) {
    std::vector<Tensor> tensors;
    for (int i = 0; i < count; ++i) {
        tensors.push_back({i, static_cast<std::size_t>(i) * 37 % 450});
    }
    return tensors;
}

void expect_every_chunk_once(const std::vector<Tensor>& tensors, const Seen& seen) {
    std::size_t chunks = 0;
    for (const Tensor& tensor : tensors) {
        chunks += (tensor.count + kChunk - 1) / kChunk;
    }
    EXPECT_EQ(seen.chunks.size(), chunks);
    for (const auto& [chunk, times] : seen.chunks) {
        EXPECT_EQ(times, 1) << "chunk " << chunk.second << " of tensor " << chunk.first;
    }
}

TEST(TensorBatch, EveryChunkIsInOneLaunch) {
    constexpr int kFit = TensorBatch<Tensor, kSmallBatchBytes>::kCapacity;
    for (const int count : {1, 2, 7, kFit, kFit + 1, 3 * kFit + 5}) {
        const std::vector<Tensor> tensors = tensors_of(count);
        Seen small;
        Seen large;
        EXPECT_EQ(launch_in_batches<false>(std::span(tensors), kChunk, std::ref(small)), 0);
        EXPECT_EQ(launch_in_batches<true>(std::span(tensors), kChunk, std::ref(large)), 0);
        expect_every_chunk_once(tensors, small);
        expect_every_chunk_once(tensors, large);
        EXPECT_LE(large.launch_sizes.size(), 1U);
    }
}

TEST(TensorBatch, EmptyTensorsNeedNoLaunch) {
    Seen seen;
    const std::vector<Tensor> tensors{{0, 0}, {1, 0}};
    EXPECT_EQ(launch_in_batches<true>(std::span(tensors), kChunk, std::ref(seen)), 0);
    EXPECT_THAT(seen.launch_sizes, IsEmpty());
}

TEST(TensorBatch, FirstFailureEndsTheLaunches) {
    const std::vector<Tensor> tensors(1000, Tensor{1, kChunk});
    int launches = 0;
    const auto fail = [&](const auto& /*batch*/) {
        ++launches;
        return 7;
    };
    EXPECT_EQ(launch_in_batches<false>(std::span(tensors), kChunk, fail), 7);
    EXPECT_EQ(launches, 1);
}

}  // namespace
}  // namespace regroup::optim
