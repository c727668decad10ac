// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/snapshot/entries.h"

#include <regroup/error.h>

#include <algorithm>
#include <array>
#include <utility>

namespace regroup::snapshot {

std::string_view dtype_name(DType dtype) noexcept {
    switch (dtype) {
        case DType::float32:
            return "F32";
        case DType::float64:
            return "F64";
        case DType::int32:
            return "I32";
        case DType::int64:
            return "I64";
        case DType::uint8:
            return "U8";
        case DType::int8:
            return "I8";
        case DType::uint32:
            return "U32";
        case DType::uint64:
            return "U64";
        case DType::float16:
            return "F16";
        case DType::bfloat16:
            return "BF16";
        case DType::float8_e4m3fn:
            return "F8_E4M3";
        case DType::float8_e5m2:
            return "F8_E5M2";
    }
    return "";
}

Entry entry_of(std::string name, const TensorView& view) {
    Entry entry;
    entry.tensor.name = std::move(name);
    entry.tensor.dtype = dtype_name(view.dtype);
    entry.tensor.shape = {view.count};
    entry.data = view.data;
    entry.device = view.device;
    return entry;
}

Entry entry_of(std::string name, const TensorView& view, TensorPiece piece) {
    std::uint64_t count = 1;
    for (const std::uint64_t size : piece.shape) {
        count *= size;
    }
    if (count != view.count) {
        throw Error(Errc::invalid_argument, "tensor \"" + name + "\": the piece has " +
                                                std::to_string(count) + " elements, and " +
                                                std::to_string(view.count) + " are given");
    }
    Entry entry = entry_of(std::move(name), view);
    entry.tensor.shape = std::move(piece.shape);
    entry.tensor.offset = std::move(piece.offset);
    entry.tensor.global_shape = std::move(piece.global_shape);
    return entry;
}

std::string_view tensor_name(std::string_view entry_name) noexcept {
    const std::size_t mark = entry_name.rfind('#');
    if (mark == entry_name.npos || mark == 0 || mark + 1 == entry_name.size() ||
        entry_name.find_first_not_of("0123456789", mark + 1) != entry_name.npos) {
        return entry_name;
    }
    return entry_name.substr(0, mark);
}

const Entry* Entries::find(std::string_view name) const noexcept {
    const auto found =
        std::ranges::find_if(all_, [&](const Entry& other) { return other.tensor.name == name; });
    return found == all_.end() ? nullptr : &*found;
}

void Entries::add(Entry entry) {
    if (entry.is_bytes()) {
        entry.tensor.dtype = "U8";
        entry.tensor.shape = {0};
    }
    const std::string name = entry.tensor.name;
    if (find(name) != nullptr) {
        throw Error(Errc::invalid_argument, "\"" + name + "\" is added to the snapshot twice");
    }
    const auto layout = ImageLayout::of({"state", 0, 1}, {std::move(entry.tensor)});
    if (!layout) {
        throw Error(layout.error().code, layout.error().detail);
    }
    entry.tensor = layout->tensors().front();  // With all of its box.
    if (entry.data == nullptr && entry.tensor.bytes != 0) {
        throw Error(Errc::invalid_argument, "tensor \"" + name + "\" has no data");
    }
    if (const std::string_view tensor = tensor_name(name); tensor != name) {
        const Entry* const first = find(tensor);
        if (first == nullptr || first->tensor.dtype != entry.tensor.dtype ||
            first->tensor.global_shape != entry.tensor.global_shape) {
            throw Error(Errc::invalid_argument,
                        "\"" + name + "\" is the name of a further piece of the tensor \"" +
                            std::string(tensor) +
                            "\", and no piece of such a tensor was added before");
        }
    }
    all_.push_back(std::move(entry));
    ++edition_;
}

void Entries::clear() noexcept {
    all_.clear();
    ++edition_;
}

}  // namespace regroup::snapshot
