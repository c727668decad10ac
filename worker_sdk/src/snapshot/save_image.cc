// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/snapshot/save_image.h"

#include <regroup/error.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "rendezvous/snapshot/pieces.h"
#include "worker_sdk/src/ddp/gradient_device.h"

namespace regroup::snapshot {
namespace {

struct CopiedPiece {
    std::span<std::byte> to;
    std::span<const std::byte> from;  // Empty: the bytes are there already.
    std::uint64_t hash = 0;
};

}  // namespace

ImageLayout layout_of(const PartId& id, const ImageContent& content) {
    std::vector<TensorEntry> tensors;
    tensors.reserve(content.entries.size());
    for (std::size_t i = 0; i < content.entries.size(); ++i) {
        TensorEntry tensor = content.entries[i].tensor;
        if (content.entries[i].is_bytes()) {
            tensor.shape = tensor.global_shape = {content.bytes[i].size()};
            tensor.offset = {0};
        }
        tensors.push_back(std::move(tensor));
    }
    Result<ImageLayout> layout = ImageLayout::of(id, std::move(tensors));
    if (!layout) {
        throw Error(layout.error().code, layout.error().detail);
    }
    return *std::move(layout);
}

void save_image(const ImageLayout& layout, const Version& version, const ImageContent& content,
                std::span<std::byte> slot, CopyPool& pool) {
    std::vector<CopiedPiece> pieces;
    std::map<int, std::unique_ptr<ddp::GradientDevice>> devices;
    for (std::size_t i = 0; i < content.entries.size(); ++i) {
        const Entry& entry = content.entries[i];
        const TensorEntry& place = layout.tensors()[i];
        const std::span<std::byte> to = slot.subspan(place.begin, place.bytes);
        const bool is_on_host = entry.is_bytes() || entry.device.kind == DeviceKind::cpu;
        std::span<const std::byte> from;
        if (entry.is_bytes()) {
            from = std::as_bytes(std::span(content.bytes[i]));
        } else if (is_on_host) {
            from = {static_cast<const std::byte*>(entry.data), place.bytes};
        } else if (place.bytes > 0) {
            auto& device = devices[entry.device.index];
            if (!device) {
                device = ddp::make_gradient_device(entry.device, {});
            }
            device->read(to.data(), entry.data, place.bytes);
        }
        for (std::size_t at = 0; at < place.bytes; at += kPieceBytes) {
            const std::size_t bytes = std::min<std::size_t>(kPieceBytes, place.bytes - at);
            pieces.push_back({to.subspan(at, bytes),
                              is_on_host ? from.subspan(at, bytes) : std::span<const std::byte>()});
        }
    }
    pool.run(pieces.size(), [&pieces](std::size_t i) {
        CopiedPiece& piece = pieces[i];
        piece.hash =
            piece.from.empty() ? hash_of_piece(piece.to) : copy_piece(piece.to, piece.from);
    });
    std::vector<std::uint64_t> hashes;
    std::vector<std::uint64_t> of_tensor;
    std::size_t next = 0;
    for (const TensorEntry& place : layout.tensors()) {
        of_tensor.clear();
        for (std::size_t i = 0; i < pieces_count(place.bytes); ++i) {
            of_tensor.push_back(pieces[next++].hash);
        }
        hashes.push_back(hash_of_pieces(of_tensor));
    }
    const std::string header = layout.header(version, hashes);
    std::memcpy(slot.data(), header.data(), header.size());
}

}  // namespace regroup::snapshot
