// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>

#include "model.h"

namespace mixed_precision {

std::unique_ptr<Model> make_cuda_model(const Sizes& /*sizes*/, const Level& /*level*/,
                                       const regroup::Context& /*context*/) {
    throw regroup::Error(regroup::Errc::invalid_argument,
                         "--device cuda: this program is for CPUs; run mixed_precision_cuda, which "
                         "is built where the CUDA toolkit and cuBLAS are found");
}

}  // namespace mixed_precision
