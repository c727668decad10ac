// SPDX-License-Identifier: Apache-2.0
// Many tensors in one launch of a kernel. Each tensor is divided into chunks, which the blocks of
// threads take one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "worker_sdk/src/optim/update_rules.h"

namespace regroup::optim {

/// The tensors of one launch, in the arguments of the kernel. `Tensor` is what the kernel needs of
/// each; its `count` is divided into chunks.
template <class Tensor, std::size_t bytes_max>
struct TensorBatch {
    static constexpr std::size_t kCapacity =
        (bytes_max - sizeof(std::uint64_t)) / (sizeof(Tensor) + sizeof(std::uint32_t));

    struct Chunk {
        const Tensor& tensor;
        std::size_t chunk;  ///< Of the tensor.
    };

    Tensor tensors[kCapacity];
    std::uint32_t ends[kCapacity];  ///< The chunks of each tensor and of those before it.
    std::uint32_t size = 0;

    [[nodiscard]] REGROUP_EVERYWHERE std::uint32_t chunk_count() const {
        return size == 0 ? 0 : ends[size - 1];
    }
    [[nodiscard]] REGROUP_EVERYWHERE Chunk place_of(std::uint32_t chunk) const {
        std::uint32_t low = 0;
        std::uint32_t high = size - 1;
        while (low < high) {
            const std::uint32_t middle = (low + high) / 2;
            if (ends[middle] > chunk) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        return {tensors[low], chunk - (low == 0 ? 0 : ends[low - 1])};
    }

    /// False if there is no room.
    bool add(const Tensor& tensor, std::size_t chunk_elements) {
        if (size == kCapacity) {
            return false;
        }
        const std::size_t chunks = (tensor.count + chunk_elements - 1) / chunk_elements;
        ends[size] = chunk_count() + static_cast<std::uint32_t>(chunks);
        tensors[size] = tensor;
        ++size;
        return true;
    }
};

/// The bytes of a kernel's arguments for its tensors. The rest are for its other arguments.
inline constexpr std::size_t kSmallBatchBytes = 3840;
inline constexpr std::size_t kLargeBatchBytes = 32000;

/// Calls `launch` with one batch after the other until all tensors with elements have been in one.
/// Returns the first result that is not 0.
template <std::size_t bytes_max, class Tensor, class Launch>
int launch_in_batches_of(std::span<const Tensor> tensors, std::size_t chunk_elements,
                         const Launch& launch) {
    TensorBatch<Tensor, bytes_max> batch;
    for (const Tensor& tensor : tensors) {
        if (tensor.count == 0 || batch.add(tensor, chunk_elements)) {
            continue;
        }
        if (const int status = launch(batch)) {
            return status;
        }
        batch.size = 0;
        batch.add(tensor, chunk_elements);
    }
    return batch.size == 0 ? 0 : launch(batch);
}

/// The same, with large batches if they are needed and `has_large` says that a kernel can take
/// them.
template <bool has_large, class Tensor, class Launch>
int launch_in_batches(std::span<const Tensor> tensors, std::size_t chunk_elements,
                      const Launch& launch) {
    if constexpr (has_large) {
        if (tensors.size() > TensorBatch<Tensor, kSmallBatchBytes>::kCapacity) {
            return launch_in_batches_of<kLargeBatchBytes>(tensors, chunk_elements, launch);
        }
    }
    return launch_in_batches_of<kSmallBatchBytes>(tensors, chunk_elements, launch);
}

}  // namespace regroup::optim
