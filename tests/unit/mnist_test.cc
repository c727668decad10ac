// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "examples/mnist/idx.h"
#include "examples/mnist/network.h"
#include "tests/support/fake_process_group.h"
#include "tests/support/temporary_directory.h"

namespace mnist {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Idx : public ::testing::Test {
   protected:
    Idx() { write_digits(directory_, "train", digits_); }

    // Replaces the bytes of a file from `at` on.
    void damage(const std::string& name, std::streamoff at, const std::string& bytes) const {
        std::fstream file(directory_ / name, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(at);
        file << bytes;
    }
    [[nodiscard]] std::string complaint() const {
        try {
            (void)read_digits(directory_, "train");
        } catch (const IdxError& error) {
            return error.what();
        }
        return "no complaint";
    }

    const std::string images_ = "train-images-idx3-ubyte";
    const std::string labels_ = "train-labels-idx1-ubyte";
    const Digits digits_ = draw_digits(20, 1);
    regroup::testing::TemporaryDirectory folder_;
    fs::path directory_ = folder_.path();
};

TEST_F(Idx, WrittenFilesAreReadAgain) {
    const Digits digits = read_digits(directory_, "train");
    EXPECT_EQ(digits.pixels, digits_.pixels);
    EXPECT_EQ(digits.labels, digits_.labels);
    EXPECT_TRUE(has_digits(directory_, "train"));
    EXPECT_FALSE(has_digits(directory_, "t10k"));
}

TEST_F(Idx, HeaderIsThatOfTheFormat) {
    std::ifstream file(directory_ / images_, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    EXPECT_EQ(bytes.substr(0, 16), std::string("\0\0\x08\x03\0\0\0\x14\0\0\0\x1c\0\0\0\x1c", 16));
    EXPECT_EQ(bytes.size(), 16 + 20 * kPixels);
}

TEST_F(Idx, WrongMagicIsRefused) {
    damage(images_, 3, "\x01");
    EXPECT_EQ(complaint(), (directory_ / images_).string() +
                               " its field 'magic number' is 0x00000801, not 0x00000803 (unsigned "
                               "bytes in three dimensions)");
}

TEST_F(Idx, OtherSizesOfImagesAreRefused) {
    damage(images_, 15, "\x20");
    EXPECT_THAT(complaint(), HasSubstr("its field 'columns' is 32, not 28"));
}

TEST_F(Idx, TruncatedFilesAreRefused) {
    fs::resize_file(directory_ / images_, 10000);
    EXPECT_THAT(complaint(), EndsWith(images_ + " holds 9984 bytes after its header, which "
                                                "announces 15680"));
    fs::resize_file(directory_ / images_, 7);
    EXPECT_THAT(complaint(), HasSubstr("ends after 7 bytes, before its field 'count'"));
    fs::resize_file(directory_ / images_, 0);
    EXPECT_THAT(complaint(), HasSubstr("ends after 0 bytes, before its field 'magic number'"));
}

TEST_F(Idx, CountsBeyondReasonAreRefused) {
    damage(images_, 4, "\xff");
    EXPECT_THAT(complaint(), HasSubstr("its field 'count' is 4278190100, not from 1 to"));
    damage(images_, 4, std::string(4, '\0'));
    EXPECT_THAT(complaint(), HasSubstr("its field 'count' is 0"));
}

TEST_F(Idx, LabelsMustFitTheImages) {
    damage(labels_, 7, "\x13");
    EXPECT_THAT(complaint(), HasSubstr("its field 'count' is 19, but there are 20 images"));
    write_digits(directory_, "train", digits_);
    damage(labels_, 8 + 5, "\x0a");
    EXPECT_THAT(complaint(), HasSubstr("has label 10 for image 5, not 0 to 9"));
    fs::remove(directory_ / labels_);
    EXPECT_THAT(complaint(), EndsWith(labels_ + " cannot be read: No such file or directory"));
}

Batch batch_of(std::size_t count) {
    const Digits digits = draw_digits(count, 3);
    Batch batch;
    for (const std::uint8_t pixel : digits.pixels) {
        batch.pixels.push_back(static_cast<float>(pixel) / 128.0F - 1.0F);
    }
    batch.labels.assign(digits.labels.begin(), digits.labels.end());
    for (std::size_t i = 0; i < count * kHidden; ++i) {
        batch.dropout.push_back(i % 3 == 0 ? 0.0F : 1.5F);
    }
    return batch;
}

double loss_of(Network& network, const Batch& batch) {
    network.forward(batch);
    double loss = 0.0;
    for (const Score& score : network.scores()) {
        loss += static_cast<double>(score.loss);
    }
    return loss;
}

std::span<float> floats(const regroup::TensorView& view) {
    return {static_cast<float*>(view.data), view.count};
}

/// A network and its gradients.
struct Rank {
    regroup::testing::FakeWorld world{1};
    regroup::testing::FakeProcessGroup group{world, 0};
    std::unique_ptr<Network> network = make_cpu_network();
    regroup::DistributedDataParallel gradients{
        group, network->parameters(), {}, {.bucket_bytes = 1}};
};

// Moving the values of one tensor a little along its gradient must change the loss by what the
// gradient promises.
TEST(MnistNetwork, GradientsAgreeWithFiniteDifferences) {
    Rank rank;
    Network& network = *rank.network;
    std::mt19937 random(1);
    for (float& value : floats(network.values())) {
        value = 0.2F * (static_cast<float>(random() >> 8U) * 0x1.0p-23F - 1.0F);
    }
    const Batch batch = batch_of(6);
    (void)loss_of(network, batch);
    network.backward(batch, 1.0F, rank.gradients);
    for (std::size_t index = 0; index < kTensorCount; ++index) {
        const std::span<float> value = floats(network.value(index));
        const std::vector<float> before(value.begin(), value.end());
        const std::span<float> gradient = floats(rank.gradients.gradient(index));
        double square = 0.0;
        for (const float each : gradient) {
            square += static_cast<double>(each) * static_cast<double>(each);
        }
        const double slope = std::sqrt(square);
        ASSERT_GT(slope, 0.0) << kTensors[index].name;
        const auto loss_at = [&](double way) {
            for (std::size_t i = 0; i < value.size(); ++i) {
                value[i] = static_cast<float>(static_cast<double>(before[i]) +
                                              way * static_cast<double>(gradient[i]) / slope);
            }
            return loss_of(network, batch);
        };
        constexpr double kStep = 1e-3;
        const double difference = (loss_at(kStep) - loss_at(-kStep)) / (2.0 * kStep);
        (void)loss_at(0.0);
        EXPECT_NEAR(difference, slope, 0.02 * slope) << kTensors[index].name;
    }
}

TEST(MnistNetwork, GradientsBecomeReadyFromTheLastLayerToTheFirst) {
    Rank rank;
    const Batch batch = batch_of(1);
    rank.network->forward(batch);
    rank.network->backward(batch, 1.0F, rank.gradients);
    rank.gradients.finish_step();  // Now the order of the buckets is that of the reports.
    std::vector<std::size_t> order;
    for (const regroup::Bucket& bucket : rank.gradients.buckets()) {
        order.insert(order.end(), bucket.parameters.begin(), bucket.parameters.end());
    }
    EXPECT_THAT(order, ElementsAre(fc2_bias, fc2_weight, fc1_bias, fc1_weight, conv2_bias,
                                   conv2_weight, conv1_bias, conv1_weight));
}

TEST(MnistNetwork, EmptyShareHasNoScoreAndNoGradient) {
    Rank rank;
    rank.network->forward(batch_of(1));
    rank.network->forward({});
    EXPECT_TRUE(rank.network->scores().empty());
    rank.network->backward({}, 1.0F, rank.gradients);
    rank.gradients.finish_step();
    for (std::size_t index = 0; index < kTensorCount; ++index) {
        EXPECT_THAT(floats(rank.gradients.gradient(index)), Each(0.0F));
    }
}

}  // namespace
}  // namespace mnist
