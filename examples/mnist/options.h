// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "flags.h"

namespace mnist {

/// The flags; the values here are the defaults.
struct Options {
    std::string data{};
    std::string make_data{};
    std::int64_t images = 6000;
    std::int64_t epochs = 10;
    std::int64_t global_batch = 64;
    double learning_rate = 0.01;
    double momentum = 0.5;
    double dropout = 0.0;
    std::int64_t seed = 1;
    double clip_norm = 5.0;
    std::string wire = "float16";
    std::string device = "cpu";
    std::string checkpoint{};

    /// Checks that single flags cannot make. Throws UsageError.
    void check() const {
        if (device != "cpu" && device != "cuda") {
            throw example::UsageError("--device takes cpu or cuda, not '" + device + "'");
        }
        if (wire != "float32" && wire != "float16" && wire != "bfloat16") {
            throw example::UsageError("--wire takes float32, float16 or bfloat16, not '" + wire +
                                      "'");
        }
        if (dropout > 0.9) {
            throw example::UsageError("--dropout takes a number from 0 to 0.9");
        }
    }
};

inline example::Flags flags_of(Options& options) {
    example::Flags flags("mnist",
                         "trains a small convolutional network to read handwritten digits,\n"
                         "on as many ranks as there are, whatever happens to them.");
    flags.add("--data", options.data,
              "folder of train-images-idx3-ubyte and the other files of MNIST;\n"
              "                           without it, digits are drawn");
    flags.add("--make-data", options.make_data, "folder to write drawn digits to, and end");
    flags.add("--images", options.images, {1, 1 << 20}, "digits to draw to learn from");
    flags.add("--epochs", options.epochs, {.min = 1}, "times that every image is seen");
    flags.add("--global-batch", options.global_batch, {1, 1 << 20},
              "images per step, over all ranks together");
    flags.add("--learning-rate", options.learning_rate, "of SGD");
    flags.add("--momentum", options.momentum, "of SGD");
    flags.add("--dropout", options.dropout, "share of hidden units left out of a step");
    flags.add("--seed", options.seed, {}, "of the weights, the order and the dropout");
    flags.add("--clip-norm", options.clip_norm, "limit for the norm of the gradients");
    flags.add("--wire", options.wire,
              "format in which gradients travel: float32, float16 or bfloat16 (float16)");
    flags.add("--device", options.device, "cpu or cuda (cpu)");
    flags.add("--checkpoint", options.checkpoint,
              "file to resume from if it is there; saved after each epoch");
    return flags;
}

}  // namespace mnist
