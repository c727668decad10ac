// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/snapshot/opened_version.h"

#include <regroup/error.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "rendezvous/snapshot/pieces.h"
#include "worker_sdk/src/base/copy.h"
#include "worker_sdk/src/ddp/gradient_device.h"

namespace regroup::snapshot {
namespace {

/// The first question for a header asks for so many bytes.
constexpr std::uint64_t kHeaderGuess = std::uint64_t{256} << 10U;
/// A question to another node takes about as long as so many bytes. Once single tensors of a part
/// have cost half as much as the whole image, the whole image is fetched.
constexpr std::uint64_t kQuestionCost = std::uint64_t{1} << 20U;

std::string shape_text(const std::vector<std::uint64_t>& shape) {
    std::string text = "[";
    for (const std::uint64_t size : shape) {
        text += (text.size() > 1 ? "," : "") + std::to_string(size);
    }
    return text + "]";
}

std::string_view words_of(Holding::Place place) {
    switch (place) {
        case Holding::Place::room:
            return "in memory";
        case Holding::Place::copy:
            return "in memory, a copy";
        case Holding::Place::folder:
            return "in the folder";
    }
    return "";
}

}  // namespace

OpenedVersion::OpenedVersion(Keeper& keeper, Candidate candidate,
                             std::vector<Announcement> announcements, Reader reader,
                             std::function<void(const std::string&)> report)
    : keeper_(keeper),
      candidate_(std::move(candidate)),
      announcements_(std::move(announcements)),
      reader_(std::move(reader)),
      report_(std::move(report)) {}

std::uint32_t OpenedVersion::first_part() const noexcept {
    return static_cast<std::uint32_t>(std::uint64_t{reader_.rank} * candidate_.parts /
                                      reader_.world_size);
}

std::string OpenedVersion::place_of(std::uint32_t part, const Source& source) const {
    const auto node =
        std::find_if(announcements_.begin(), announcements_.end(),
                     [&](const Announcement& each) { return each.node == source.node; });
    return "part " + std::to_string(part) + " of " + std::to_string(candidate_.parts) + " of " +
           to_string(candidate_.version) + " of the state \"" + reader_.name + "\" on node " +
           std::to_string(source.node) +
           (node != announcements_.end() && !node->name.empty() ? " (" + node->name + ")" : "") +
           ", " + std::string(words_of(source.place)) + ",";
}

Result<Keeper::Wanted> OpenedVersion::question_to(const Source& source, std::uint32_t part) const {
    Keeper::Wanted wanted{.id = {reader_.name, part, candidate_.parts},
                          .version = candidate_.version,
                          .place = source.place};
    if (source.node != reader_.node) {
        for (const Announcement& each : announcements_) {
            wanted.endpoint = each.node == source.node ? each.endpoint : wanted.endpoint;
        }
        // Without an endpoint, only a folder that both nodes share can have it.
        if (wanted.endpoint.empty() && source.place != Holding::Place::folder) {
            return Failure(Errc::overloaded, "cannot be reached from here");
        }
    }
    return wanted;
}

bool OpenedVersion::has(const Part& part, const Need& need) {
    if (part.image) {
        return true;
    }
    return !need.image && part.header && (need.tensor.empty() || part.alone.contains(need.tensor));
}

Result<HeldImage> OpenedVersion::image_from(const Keeper::Wanted& wanted) {
    Result<HeldImage> image = keeper_.image(wanted);
    if (!image) {
        return Failure(image.error().code, "cannot be read: " + image.error().detail);
    }
    return image;
}

Result<ImageHeader> OpenedVersion::header_from(Keeper::Wanted wanted) {
    wanted.bytes = kHeaderGuess;
    Result<HeldImage> beginning = image_from(wanted);
    if (!beginning) {
        return beginning.error();
    }
    const Result<std::uint64_t> bytes = header_bytes(beginning->bytes);
    if (!bytes) {
        return bytes.error();
    }
    if (*bytes > beginning->bytes.size()) {
        wanted.bytes = *bytes;
        beginning = image_from(wanted);
    }
    return beginning ? read_header(beginning->bytes) : Result<ImageHeader>(beginning.error());
}

Result<void> OpenedVersion::set_header(Part& opened, std::size_t source, Result<ImageHeader> read) {
    if (!read) {
        return read.error();
    }
    opened.header = *std::move(read);
    opened.source = source;
    opened.alone.clear();
    opened.tensors.clear();
    for (const TensorEntry& tensor : opened.header->tensors) {
        opened.tensors[tensor_name(tensor.name)].push_back(&tensor);
    }
    return {};
}

Result<void> OpenedVersion::open_from(std::size_t source, Keeper::Wanted wanted, const Need& need,
                                      Part& opened) {
    const auto checked = [&](Result<ImageHeader> read) {
        if (read && (read->id != wanted.id || read->version != candidate_.version)) {
            return Result<ImageHeader>(invalid_argument(
                "is damaged: its header says that it is part " + std::to_string(read->id.part) +
                " of " + to_string(read->version)));
        }
        return read;
    };
    if (need.image) {
        Result<HeldImage> image = image_from(wanted);
        if (!image) {
            return image.error();
        }
        const Result<void> read =
            set_header(opened, source, checked(verify_image(image->bytes, reader_.threads)));
        if (read) {
            opened.image = *std::move(image);
            opened.wanted = std::move(wanted);
        }
        return read;
    }
    if (!opened.header || opened.source != source) {
        if (Result<void> read = set_header(opened, source, checked(header_from(wanted))); !read) {
            return read;
        }
    }
    // Another source may have another header: then there may be no such tensor.
    const TensorEntry* const tensor =
        need.tensor.empty() ? nullptr : opened.header->find(need.tensor);
    if (tensor == nullptr) {
        return {};
    }
    HeldImage held;
    if (tensor->bytes > 0) {
        wanted.begin = tensor->begin;
        wanted.bytes = tensor->bytes;
        Result<HeldImage> got = image_from(wanted);
        if (!got) {
            return got.error();
        }
        held = *std::move(got);
    }
    if (held.bytes.size() != tensor->bytes || hash_of_tensor(held.bytes) != tensor->hash) {
        return invalid_argument("is damaged: tensor " + tensor->name + " has another hash");
    }
    opened.alone[tensor->name] = std::move(held);
    return {};
}

Result<void> OpenedVersion::open(std::uint32_t part, const Need& need) {
    Part& opened = parts_[part];
    if (has(opened, need)) {
        return {};
    }
    const std::vector<Source> sources = candidate_.order(part, reader_.node);
    // All of them once, before the training waits for one.
    for (const bool patient : {false, true}) {
        for (std::size_t i = 0; i < sources.size(); ++i) {
            if (patient ? !opened.unreachable.contains(i) : opened.bad_sources.contains(i)) {
                continue;
            }
            Result<Keeper::Wanted> wanted = question_to(sources[i], part);
            if (wanted) {
                wanted->patient = patient;
            }
            const Result<void> done =
                wanted ? open_from(i, *wanted, need, opened) : Result<void>(wanted.error());
            if (done) {
                return {};
            }
            opened.unreachable.erase(i);
            if (done.error().code == Errc::disconnected) {
                opened.unreachable.insert(i);
            }
            if (opened.bad_sources.insert(i).second) {
                report_(place_of(part, sources[i]) + " " + done.error().detail);
            }
        }
    }
    return Failure(opened.unreachable.empty() ? Errc::overloaded : Errc::disconnected,
                   "no undamaged copy of part " + std::to_string(part) + " of " +
                       to_string(candidate_.version) + " of the state \"" + reader_.name +
                       (opened.unreachable.empty() ? "\" is left" : "\" can be reached"));
}

Result<void> OpenedVersion::get(std::uint32_t part, const TensorEntry& entry) {
    Part& opened = parts_[part];
    opened.cost += kQuestionCost + entry.bytes;
    return opened.cost > opened.header->bytes / 2 ? open(part, {.image = true})
                                                  : open(part, {.tensor = entry.name});
}

std::span<const std::byte> OpenedVersion::data(std::uint32_t part, const TensorEntry& entry) const {
    const Part& opened = parts_.at(part);
    return opened.image ? opened.image->bytes.subspan(entry.begin, entry.bytes)
                        : opened.alone.at(entry.name).bytes;
}

Result<void> OpenedVersion::verify_share() {
    const auto end = static_cast<std::uint32_t>((std::uint64_t{reader_.rank} + 1) *
                                                candidate_.parts / reader_.world_size);
    for (std::uint32_t part = first_part(); part < end; ++part) {
        if (Result<void> opened = open(part, {.image = true}); !opened) {
            return opened;
        }
    }
    return {};
}

void OpenedVersion::take(std::uint32_t part, const TensorEntry& wanted, std::vector<Box>& missing,
                         std::vector<Take>& takes, std::string& found) {
    const auto pieces = parts_[part].tensors.find(tensor_name(wanted.name));
    if (pieces == parts_[part].tensors.end()) {
        return;
    }
    for (const TensorEntry* const from : pieces->second) {
        if (from->dtype != wanted.dtype || from->global_shape != wanted.global_shape) {
            found = from->dtype + " " + shape_text(from->global_shape);
            continue;
        }
        std::vector<Box> rest;
        for (const Box& box : missing) {
            const auto common = intersection(box, Box::of(*from));
            if (!common) {
                rest.push_back(box);
                continue;
            }
            takes.push_back({part, from, *common});
            const std::vector<Box> left = difference(box, *common);
            rest.insert(rest.end(), left.begin(), left.end());
        }
        missing = std::move(rest);
    }
}

Result<std::vector<OpenedVersion::Take>> OpenedVersion::plan(const TensorEntry& wanted) {
    std::vector<Take> takes;
    std::vector<Box> missing{Box::of(wanted)};
    if (missing.front().empty()) {
        return takes;
    }
    std::string found;
    // The own part first, and its neighbours: there the pieces are likely to be.
    for (std::uint32_t i = 0; i < candidate_.parts && !missing.empty(); ++i) {
        const std::uint32_t part = (first_part() + i) % candidate_.parts;
        if (Result<void> opened = open(part, {}); !opened) {
            return opened.error();
        }
        take(part, wanted, missing, takes, found);
    }
    if (!missing.empty()) {
        const std::string about = "tensor \"" + wanted.name +
                                  "\": " + to_string(candidate_.version) + " of the state \"" +
                                  reader_.name + "\" ";
        return invalid_argument(
            about + (found.empty() ? takes.empty() ? "has no such tensor"
                                                   : "has only some of what this rank needs"
                                   : "has it as " + found + ", and this rank needs " +
                                         wanted.dtype + " " + shape_text(wanted.global_shape)));
    }
    return takes;
}

Result<std::vector<OpenedVersion::Take>> OpenedVersion::plan_verified(const TensorEntry& wanted) {
    for (;;) {
        Result<std::vector<Take>> takes = plan(wanted);
        if (!takes) {
            return takes;
        }
        const auto missing = std::ranges::find_if(*takes, [this](const Take& take) {
            return !has(parts_[take.part], {.tensor = take.from->name});
        });
        if (missing == takes->end()) {
            return takes;
        }
        // The plan is made again: another source may have another header.
        if (Result<void> got = get(missing->part, *missing->from); !got) {
            return got.error();
        }
    }
}

Result<std::span<const std::byte>> OpenedVersion::image(std::uint32_t part) {
    if (Result<void> opened = open(part, {.image = true}); !opened) {
        return opened.error();
    }
    return parts_[part].image->bytes;
}

std::optional<Keeper::Wanted> OpenedVersion::fetched(std::uint32_t part) const {
    const auto found = parts_.find(part);
    if (found == parts_.end() || !found->second.image || found->second.wanted.endpoint.empty() ||
        found->second.wanted.place == Holding::Place::folder) {
        return std::nullopt;
    }
    return found->second.wanted;
}

Result<void> OpenedVersion::prepare(const Entry& entry) {
    if (entry.is_bytes()) {
        const auto found = bytes(entry.tensor.name);
        return found ? Result<void>() : Result<void>(found.error());
    }
    const auto takes = plan_verified(entry.tensor);
    return takes ? Result<void>() : Result<void>(takes.error());
}

Result<std::span<const std::byte>> OpenedVersion::bytes(const std::string& name) {
    for (std::uint32_t i = 0; i <= candidate_.parts; ++i) {
        const std::uint32_t part = i == 0 ? first_part() : i - 1;
        if (Result<void> opened = open(part, {}); !opened) {
            return opened.error();
        }
        while (const TensorEntry* const entry = parts_[part].header->find(name)) {
            if (has(parts_[part], {.tensor = name})) {
                return data(part, *entry);
            }
            if (Result<void> got = get(part, *entry); !got) {
                return got.error();
            }
        }
    }
    return invalid_argument("\"" + name + "\": " + to_string(candidate_.version) +
                            " of the state \"" + reader_.name + "\" has no such entry");
}

Result<void> OpenedVersion::read(const Entry& entry, CopyPool& pool) {
    const Result<std::vector<Take>> takes = plan_verified(entry.tensor);
    if (!takes) {
        return takes.error();
    }
    const Box whole = Box::of(entry.tensor);
    const bool is_on_host = entry.device.kind == DeviceKind::cpu;
    std::vector<std::byte> staged;
    auto* target = static_cast<std::byte*>(entry.data);
    for (const Take& take : *takes) {
        const auto data = this->data(take.part, *take.from);
        const Box from = Box::of(*take.from);
        const bool is_same = take.box == whole && from == whole;
        if (is_same && is_on_host) {
            pool.run(pieces_count(data.size()), [&](std::size_t i) {
                const std::size_t at = i * kPieceBytes;
                copy_bytes(target + at, data.data() + at, std::min(kPieceBytes, data.size() - at));
            });
        } else if (is_same) {
            ddp::make_gradient_device(entry.device, {})->write(target, data.data(), data.size());
        } else {
            if (!is_on_host && staged.empty()) {
                staged.resize(entry.tensor.bytes);
            }
            copy_box(take.box, {whole, is_on_host ? target : staged.data()}, {from, data.data()},
                     item_bytes(entry.tensor.dtype));
        }
    }
    if (!staged.empty()) {
        ddp::make_gradient_device(entry.device, {})->write(target, staged.data(), staged.size());
    }
    return {};
}

}  // namespace regroup::snapshot
