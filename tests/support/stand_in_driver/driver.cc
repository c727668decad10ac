// SPDX-License-Identifier: Apache-2.0
// A stand-in for libcuda.so.1, with one GPU once it is initialised.
namespace {

bool is_initialised = false;
constexpr int kNotInitialised = 3;

}  // namespace

extern "C" {

int cuInit(unsigned /*flags*/) {
    is_initialised = true;
    return 0;
}

int cuDeviceGetCount(int* count) {
    *count = 1;
    return is_initialised ? 0 : kNotInitialised;
}
}
