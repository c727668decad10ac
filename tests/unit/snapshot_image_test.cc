// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/snapshot/image.h"
#include "rendezvous/snapshot/pieces.h"

namespace regroup::snapshot {
namespace {

using ::testing::HasSubstr;

constexpr Version kVersion{1'700'000'000'000'000'000, 3, 40};

TensorEntry tensor(std::string name, std::string dtype, std::vector<std::uint64_t> shape) {
    return {.name = std::move(name), .dtype = std::move(dtype), .shape = std::move(shape)};
}

std::vector<TensorEntry> some_tensors() {
    TensorEntry piece = tensor("layer.weight", "F32", {2, 3});
    piece.offset = {4, 0};
    piece.global_shape = {8, 3};
    return {piece, tensor("empty", "BF16", {0}), tensor("bias \"quoted\"", "U8", {5}),
            tensor("scalar", "I64", {})};
}

std::vector<std::byte> image_of(const ImageLayout& layout, const Version& version,
                                std::uint32_t seed = 1) {
    std::vector<std::byte> image(layout.bytes());
    std::mt19937 random(seed);
    std::vector<std::uint64_t> hashes;
    for (const TensorEntry& entry : layout.tensors()) {
        std::vector<std::byte> bytes(entry.bytes);
        std::generate(bytes.begin(), bytes.end(), [&] { return std::byte(random()); });
        std::copy(bytes.begin(), bytes.end(),
                  image.begin() + static_cast<std::ptrdiff_t>(entry.begin));
        hashes.push_back(hash_of_tensor(bytes));
    }
    const std::string header = layout.header(version, hashes);
    std::memcpy(image.data(), header.data(), header.size());
    return image;
}

TEST(SnapshotImage, ReadsBackWhatItWrote) {
    const Result<ImageLayout> layout = ImageLayout::of({"state", 1, 4}, some_tensors());
    ASSERT_TRUE(layout) << layout.error().detail;
    const std::vector<std::byte> image = image_of(*layout, kVersion);
    const Result<ImageHeader> header = verify_image(image, 2);
    ASSERT_TRUE(header) << header.error().detail;
    EXPECT_EQ(header->version, kVersion);
    EXPECT_EQ(header->id, (PartId{"state", 1, 4}));
    EXPECT_EQ(header->bytes, image.size());
    ASSERT_EQ(header->tensors.size(), 4U);
    const TensorEntry* const piece = header->find("layer.weight");
    ASSERT_NE(piece, nullptr);
    EXPECT_EQ(piece->offset, (std::vector<std::uint64_t>{4, 0}));
    EXPECT_EQ(piece->global_shape, (std::vector<std::uint64_t>{8, 3}));
    EXPECT_EQ(piece->bytes, 24U);
    EXPECT_EQ(header->find("scalar")->bytes, 8U);
    EXPECT_EQ(header->find("nothing"), nullptr);
}

TEST(SnapshotImage, NoFlippedByteIsAccepted) {
    const Result<ImageLayout> layout = ImageLayout::of({"state", 0, 2}, some_tensors());
    const std::vector<std::byte> good = image_of(*layout, kVersion);
    std::mt19937 random(7);
    for (int i = 0; i < 10'000; ++i) {
        std::vector<std::byte> image = good;
        const std::size_t at = random() % image.size();
        image[at] ^= std::byte(1U << (random() % 8));
        ASSERT_FALSE(verify_image(image)) << "byte " << at;
    }
}

TEST(SnapshotImage, CutImageIsRefused) {
    const Result<ImageLayout> layout = ImageLayout::of({"state", 0, 1}, some_tensors());
    const std::vector<std::byte> good = image_of(*layout, kVersion);
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{7}, std::size_t{100}, good.size() - 1}) {
        EXPECT_FALSE(verify_image(std::span(good).first(bytes)));
    }
}

TEST(SnapshotImage, DamagedTensorIsNamed) {
    const Result<ImageLayout> layout = ImageLayout::of({"state", 0, 1}, some_tensors());
    std::vector<std::byte> image = image_of(*layout, kVersion);
    image[layout->tensors()[0].begin + 3] ^= std::byte{1};
    const Result<ImageHeader> header = verify_image(image);
    ASSERT_FALSE(header);
    EXPECT_THAT(header.error().detail, HasSubstr("layer.weight"));
}

TEST(SnapshotImage, TensorsThatCannotBeAreRefused) {
    const auto error_of = [](std::vector<TensorEntry> tensors) {
        const auto layout = ImageLayout::of({"state", 0, 1}, std::move(tensors));
        return layout ? "" : layout.error().detail;
    };
    EXPECT_THAT(error_of({tensor("a", "F32", {1}), tensor("a", "F32", {1})}), HasSubstr("twice"));
    EXPECT_THAT(error_of({tensor("a", "float", {1})}), HasSubstr("no type float"));
    EXPECT_THAT(error_of({tensor("", "F32", {1})}), HasSubstr("name"));
    EXPECT_THAT(error_of({tensor("__metadata__", "F32", {1})}), HasSubstr("name"));
    EXPECT_THAT(error_of({tensor("\xff", "F32", {1})}), HasSubstr("UTF-8"));
    EXPECT_THAT(error_of({tensor("a", "F32", {1ULL << 40U, 1ULL << 40U})}), HasSubstr("\"a\""));
    TensorEntry outside = tensor("a", "F32", {2});
    outside.offset = {7};
    outside.global_shape = {8};
    EXPECT_THAT(error_of({outside}), HasSubstr("not within"));
}

TEST(SnapshotImage, HashOfALargeTensorDoesNotDependOnHowItIsCopied) {
    std::vector<std::byte> bytes(kPieceBytes + 4099);
    std::mt19937 random(3);
    std::generate(bytes.begin(), bytes.end(), [&] { return std::byte(random()); });
    for (const std::size_t shift : {0U, 1U, 13U}) {
        std::vector<std::byte> target(bytes.size() + 64);
        std::vector<std::uint64_t> hashes;
        for (std::size_t at = 0; at < bytes.size(); at += kPieceBytes) {
            const std::size_t count = std::min(kPieceBytes, bytes.size() - at);
            hashes.push_back(copy_piece(std::span(target).subspan(at + shift, count),
                                        std::span(bytes).subspan(at, count)));
        }
        EXPECT_EQ(hash_of_pieces(hashes), hash_of_tensor(bytes));
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(),
                               target.begin() + static_cast<std::ptrdiff_t>(shift)));
    }
}

}  // namespace
}  // namespace regroup::snapshot
