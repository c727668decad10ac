// SPDX-License-Identifier: Apache-2.0
#include <regroup/checkpoint.h>
#include <regroup/error.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <type_traits>
#include <unistd.h>

#include "rendezvous/files/unique_fd.h"
#include "worker_sdk/src/base/checksum.h"
#include "worker_sdk/src/base/copy.h"
#include "worker_sdk/src/checkpoint/atomic_file.h"
#include "worker_sdk/src/checkpoint/fence.h"
#include "worker_sdk/src/link/process_link.h"
#include "worker_sdk/src/link/progress_reporter.h"

// The file, all numbers little-endian, a string being a u64 count of bytes and the bytes:
//
//     8 bytes   "RGCKPT03", the name and version of this format
//     u64       bytes of the body
//     author    u64 began, u64 round: see CheckpointOptions::round; zeros without a round
//     body      u64 count of entries, then for each: string name, string kind, string value
//     u64       checksum (XXH3) of everything before it
//
// The length at the front tells a truncated file from a damaged one.

namespace regroup {
namespace {

static_assert(std::endian::native == std::endian::little,
              "checkpoints are written as memory has it");

using checkpointing::Author;

constexpr std::string_view kMagic = "RGCKPT03";
constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr std::size_t kChecksumBytes = sizeof(std::uint64_t);
constexpr std::size_t kFrameBytes = kMagic.size() + kLengthBytes + sizeof(Author) + kChecksumBytes;
constexpr std::size_t kPendingBytesMax = std::size_t{64} << 10U;

constexpr std::string_view kText = "text";
constexpr std::string_view kInteger = "integer";
constexpr std::string_view kNumber = "number";

template <class T>
std::string to_bytes(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::string bytes(sizeof value, '\0');
    copy_bytes(bytes.data(), &value, sizeof value);
    return bytes;
}

template <class T>
T from_bytes(std::string_view bytes) {
    T value{};
    bytes.copy(reinterpret_cast<char*>(&value), sizeof value);
    return value;
}

// Combines small pieces into larger writes, and computes the checksum.
class Writer {
   public:
    explicit Writer(checkpointing::AtomicFile& file) : file_(file) {}

    void put(std::string_view bytes) {
        checksum_.add(bytes);
        if (pending_.size() + bytes.size() > kPendingBytesMax) {
            flush();
        }
        if (bytes.size() > kPendingBytesMax) {
            file_.write(bytes);
        } else {
            pending_ += bytes;
        }
    }
    void put_count(std::uint64_t count) { put(to_bytes(count)); }
    void put_string(std::string_view text) {
        put_count(text.size());
        put(text);
    }
    void finish() {
        put_count(checksum_.value());
        flush();
    }

   private:
    void flush() {
        file_.write(pending_);
        pending_.clear();
    }

    checkpointing::AtomicFile& file_;
    Checksum checksum_;
    std::string pending_;
};

[[noreturn]] void refuse(const std::string& origin, const std::string& complaint) {
    throw Error(Errc::invalid_argument, origin + " " + complaint);
}

// Parses the body. Lengths are checked, since a valid checksum does not prove a correct writer.
class Reader {
   public:
    Reader(std::string_view body, const std::string& origin) : body_(body), origin_(origin) {}

    std::uint64_t take_count() { return from_bytes<std::uint64_t>(take(sizeof(std::uint64_t))); }
    std::string take_string() { return std::string(take(take_count())); }
    [[nodiscard]] bool empty() const noexcept { return body_.empty(); }

   private:
    std::string_view take(std::uint64_t count) {
        if (count > body_.size()) {
            refuse(origin_, "is malformed: an entry ends beyond the end of the file");
        }
        const std::string_view bytes = body_.substr(0, count);
        body_.remove_prefix(count);
        return bytes;
    }

    std::string_view body_;
    const std::string& origin_;
};

// The content of a file that is complete and undamaged.
struct Verified {
    std::string_view body;
    Author author;
};

Verified verify(std::string_view content, const std::string& origin) {
    const std::string_view magic = content.substr(0, kMagic.size());
    if (magic != kMagic.substr(0, magic.size())) {
        refuse(origin, "is not a checkpoint: it does not begin with " + std::string(kMagic));
    }
    if (content.size() < kFrameBytes) {
        refuse(origin, "is truncated: it has " + std::to_string(content.size()) +
                           " bytes, the smallest checkpoint " + std::to_string(kFrameBytes));
    }
    const auto body_bytes = from_bytes<std::uint64_t>(content.substr(kMagic.size()));
    const std::size_t present = content.size() - kFrameBytes;
    if (body_bytes != present) {
        refuse(origin, (body_bytes > present ? "is truncated: " : "is too long: ") +
                           std::string("its content should have ") + std::to_string(body_bytes) +
                           " bytes and has " + std::to_string(present));
    }
    const std::string_view summed = content.substr(0, content.size() - kChecksumBytes);
    if (checksum(summed) != from_bytes<std::uint64_t>(content.substr(summed.size()))) {
        refuse(origin, "is damaged: its checksum does not match its content");
    }
    return {.body = summed.substr(summed.size() - present),
            .author = from_bytes<Author>(summed.substr(kMagic.size() + kLengthBytes))};
}

[[noreturn]] void fail_reading(std::string_view call, const std::string& path, int error_number) {
    throw Error(Errc::system, "loading checkpoint " + path + ": " + std::string(call) + ": " +
                                  std::generic_category().message(error_number));
}

constexpr std::size_t kPieceBytes = std::size_t{16} << 20U;

// Returns nullopt if there is no such file.
std::optional<std::string> read_file(const std::string& path) {
    // A FIFO must not block.
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!file) {
        if (errno == ENOENT) {
            return std::nullopt;
        }
        fail_reading("open", path, errno);
    }
    std::string content;
    struct stat status{};
    ssize_t count = ::fstat(file.get(), &status);
    if (count == 0) {
        content.resize(static_cast<std::size_t>(status.st_size));
    }
    const link::SdkTransfer transfer(worker_link::TransferKind::load, content.size());
    std::size_t filled = 0;
    while (count >= 0 && filled < content.size()) {
        // In pieces, to show how far it is.
        count = ::read(file.get(), content.data() + filled,
                       std::min(kPieceBytes, content.size() - filled));
        if (count == 0) {
            content.resize(filled);
        } else if (count > 0) {
            filled += static_cast<std::size_t>(count);
            link::SdkTransfer::add(static_cast<std::uint64_t>(count));
        } else if (errno == EINTR) {
            count = 0;
        }
    }
    if (count < 0) {
        fail_reading("read", path, errno);
    }
    return content;
}

}  // namespace

void Checkpoint::set_text(const std::string& name, std::string_view text) {
    entries_[name] = {std::string(kText), std::string(text)};
}

void Checkpoint::set_integer(const std::string& name, std::int64_t value) {
    entries_[name] = {std::string(kInteger), to_bytes(value)};
}

void Checkpoint::set_number(const std::string& name, double value) {
    entries_[name] = {std::string(kNumber), to_bytes(value)};
}

void Checkpoint::set_tensor(const std::string& name, ConstTensorView tensor) {
    std::string bytes(tensor.bytes(), '\0');
    copy_bytes(bytes.data(), tensor.data, bytes.size());
    entries_[name] = {std::string(to_string(tensor.dtype)), std::move(bytes)};
}

const Checkpoint::Entry& Checkpoint::find(std::string_view name, std::string_view kind) const {
    const auto found = entries_.find(name);
    if (found == entries_.end()) {
        refuse(origin_, "has no entry '" + std::string(name) + "'");
    }
    if (found->second.kind != kind) {
        refuse(origin_, "has '" + std::string(name) + "' as " + found->second.kind + ", not as " +
                            std::string(kind));
    }
    return found->second;
}

std::string Checkpoint::text(std::string_view name) const {
    return find(name, kText).bytes;
}

std::int64_t Checkpoint::integer(std::string_view name) const {
    return from_bytes<std::int64_t>(find(name, kInteger).bytes);
}

double Checkpoint::number(std::string_view name) const {
    return from_bytes<double>(find(name, kNumber).bytes);
}

void Checkpoint::read_tensor(std::string_view name, TensorView destination) const {
    const Entry& entry = find(name, to_string(destination.dtype));
    if (entry.bytes.size() != destination.bytes()) {
        refuse(origin_, "has '" + std::string(name) + "' with " +
                            std::to_string(entry.bytes.size() / item_bytes(destination.dtype)) +
                            " elements, not " + std::to_string(destination.count));
    }
    copy_bytes(destination.data, entry.bytes.data(), entry.bytes.size());
}

bool Checkpoint::contains(std::string_view name) const {
    return entries_.find(name) != entries_.end();
}

void Checkpoint::save(const std::filesystem::path& path, const CheckpointOptions& options) const {
    const link::SdkSection section("saving a checkpoint");
    std::uint64_t body_bytes = sizeof(std::uint64_t);
    for (const auto& [name, entry] : entries_) {
        body_bytes +=
            3 * sizeof(std::uint64_t) + name.size() + entry.kind.size() + entry.bytes.size();
    }
    const link::SdkTransfer transfer(worker_link::TransferKind::save, body_bytes + kFrameBytes);
    const Author author =
        options.round == 0 ? Author{} : Author{.began = link::history(), .round = options.round};
    checkpointing::AtomicFile file(path);
    Writer writer(file);
    writer.put(kMagic);
    writer.put_count(body_bytes);
    writer.put_count(author.began);
    writer.put_count(author.round);
    writer.put_count(entries_.size());
    for (const auto& [name, entry] : entries_) {
        writer.put_string(name);
        writer.put_string(entry.kind);
        writer.put_string(entry.bytes);
    }
    writer.finish();
    if (options.round == 0) {
        return file.commit(options.previous_count);
    }
    file.flush();
    {
        // No other writer may come between the check of the present file and the rename.
        const checkpointing::FileLock lock(path);
        checkpointing::check_fence(path, author);
        file.publish(options.previous_count);
    }
    file.flush_directory();
}

Checkpoint Checkpoint::parse(std::string_view content, const std::string& origin) {
    Checkpoint checkpoint;
    checkpoint.origin_ = origin;
    const Verified verified = verify(content, origin);
    link::note_history_read(verified.author.began);
    Reader reader(verified.body, origin);
    for (std::uint64_t left = reader.take_count(); left > 0; --left) {
        std::string name = reader.take_string();
        Entry& entry = checkpoint.entries_[std::move(name)];
        entry.kind = reader.take_string();
        entry.bytes = reader.take_string();
        const bool is_scalar = entry.kind == kInteger || entry.kind == kNumber;
        if (is_scalar && entry.bytes.size() != sizeof(std::int64_t)) {
            refuse(origin,
                   "is malformed: a number of " + std::to_string(entry.bytes.size()) + " bytes");
        }
    }
    if (!reader.empty()) {
        refuse(origin, "is malformed: bytes are left over after its last entry");
    }
    return checkpoint;
}

Author checkpointing::author_of(const std::filesystem::path& path) {
    std::array<char, kMagic.size() + kLengthBytes + sizeof(Author)> front{};
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    const ssize_t count = ::pread(file.get(), front.data(), front.size(), 0);
    const std::string_view bytes(front.data(), front.size());
    if (count != static_cast<ssize_t>(front.size()) || !bytes.starts_with(kMagic)) {
        return {};
    }
    return from_bytes<Author>(bytes.substr(kMagic.size() + kLengthBytes));
}

std::optional<Checkpoint> Checkpoint::load_if_present(const std::filesystem::path& path) {
    const link::SdkSection section("loading a checkpoint");
    const std::optional<std::string> content = read_file(path.string());
    if (!content) {
        return std::nullopt;
    }
    return parse(*content, "checkpoint " + path.string());
}

Checkpoint Checkpoint::load(const std::filesystem::path& path) {
    std::optional<Checkpoint> checkpoint = load_if_present(path);
    if (!checkpoint) {
        fail_reading("open", path.string(), ENOENT);
    }
    return std::move(*checkpoint);
}

}  // namespace regroup
