// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>

#include "network.h"

namespace mnist {

std::unique_ptr<Network> make_cuda_network(const regroup::Context& /*context*/) {
    throw regroup::Error(regroup::Errc::invalid_argument,
                         "--device cuda: this program is for CPUs; run mnist_cuda, which is built "
                         "where the CUDA toolkit, cuBLAS and cuDNN are found");
}

}  // namespace mnist
