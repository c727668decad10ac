// SPDX-License-Identifier: Apache-2.0
//
// Sums a buffer over GPUs by NCCL.
#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

constexpr std::size_t kCount = 32 << 20;  // Floats on each GPU: 128 MiB.

void check(cudaError_t result) {
    if (result != cudaSuccess) {
        std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(result));
        std::exit(1);
    }
}

void check(ncclResult_t result) {
    if (result != ncclSuccess) {
        std::fprintf(stderr, "NCCL: %s\n", ncclGetErrorString(result));
        std::exit(1);
    }
}

int main(int argc, char** argv) {
    if (argc > 1) {
        std::printf("%s: sums a buffer over GPUs by NCCL; it has no flags\n", argv[0]);
        return std::string_view(argv[1]) == "--help" ? 0 : 2;
    }
    int devices = 0;
    check(cudaGetDeviceCount(&devices));
    std::vector<ncclComm_t> comms(devices);
    check(ncclCommInitAll(comms.data(), devices, nullptr));

    std::vector<float> values(kCount, 1.0F);
    std::vector<float*> buffers(devices);
    std::vector<cudaStream_t> streams(devices);
    for (int i = 0; i < devices; ++i) {
        check(cudaSetDevice(i));
        check(cudaMalloc(&buffers[i], kCount * sizeof(float)));
        check(
            cudaMemcpy(buffers[i], values.data(), kCount * sizeof(float), cudaMemcpyHostToDevice));
        check(cudaStreamCreate(&streams[i]));
    }

    // One thread drives all GPUs: NCCL starts the calls between these two together.
    check(ncclGroupStart());
    for (int i = 0; i < devices; ++i) {
        check(ncclAllReduce(buffers[i], buffers[i], kCount, ncclFloat, ncclSum, comms[i],
                            streams[i]));
    }
    check(ncclGroupEnd());

    for (int i = 0; i < devices; ++i) {
        int rank = 0;
        int ranks = 0;
        check(ncclCommUserRank(comms[i], &rank));
        check(ncclCommCount(comms[i], &ranks));
        check(cudaSetDevice(i));
        check(cudaStreamSynchronize(streams[i]));
        check(
            cudaMemcpy(values.data(), buffers[i], kCount * sizeof(float), cudaMemcpyDeviceToHost));
        const auto expected = static_cast<float>(ranks);
        const bool right = std::count(values.begin(), values.end(), expected) == kCount;
        std::printf("rank %d of %d: the sum is %s\n", rank, ranks, right ? "right" : "WRONG");
        check(cudaStreamDestroy(streams[i]));
        check(cudaFree(buffers[i]));
        check(ncclCommDestroy(comms[i]));
    }
    return 0;
}
