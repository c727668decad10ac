// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "flags.h"

namespace mnist {

/// What the command line may say; the values here are the defaults.
struct Options {
    std::string data;
    std::string make_data;
    std::int64_t epochs = 10;
    std::int64_t global_batch = 64;
    double learning_rate = 0.01;
    double momentum = 0.5;
    double dropout = 0.0;
    std::int64_t seed = 1;
    std::string device = "cpu";
    std::string checkpoint;
    bool help = false;
};

inline Flags flags_of(Options& options) {
    constexpr std::int64_t kMany = 1'000'000'000;
    Flags flags(
        "mnist: trains a small convolutional network to read handwritten digits, data-parallel\n"
        "over however many ranks it is launched with.");
    flags
        .add("--data", options.data, "DIR",
             "with MNIST's train-images-idx3-ubyte and train-labels-idx1-ubyte, and\n"
             "                             t10k-... to be tested on; without it, drawn digits")
        .add("--make-data", options.make_data, "DIR", "write the drawn digits there, and end")
        .add("--epochs", options.epochs, 1, kMany, "times that every image is seen")
        .add("--global-batch", options.global_batch, 1, 1 << 20,
             "images per step, over all ranks together")
        .add("--learning-rate", options.learning_rate, 0.0, 1000.0, "of SGD")
        .add("--momentum", options.momentum, 0.0, 1.0, "of SGD")
        .add("--dropout", options.dropout, 0.0, 0.9, "share of hidden units left out of a step")
        .add("--seed", options.seed, 0, kMany, "of the weights, the order and the dropout")
        .add("--device", options.device, {"cpu", "cuda"}, "what to train on")
        .add("--checkpoint", options.checkpoint, "FILE",
             "resume from it if it exists; save to it after each epoch")
        .add("--help", options.help, "print this");
    return flags;
}

}  // namespace mnist
