// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>

#include "gpu_product.h"

namespace cluster_check {

std::size_t wrong_elements_on_gpu(int, const float*, const float*, const float*, std::size_t, int) {
    throw regroup::Error(regroup::Errc::invalid_argument,
                         "cluster_check was built without CUDA: it cannot compute on a GPU");
}

}  // namespace cluster_check
