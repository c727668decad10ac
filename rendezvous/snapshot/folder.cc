// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/snapshot/folder.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <map>
#include <optional>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/files/own_file.h"
#include "rendezvous/json/json_text.h"

namespace regroup::snapshot {

namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "snapshot.json";
constexpr std::size_t kCompleteKept = 2;
constexpr std::size_t kIncompleteKept = 3;
constexpr std::size_t kWriteBytes = std::size_t{8} << 20U;

std::string file_name(std::uint32_t part, std::uint32_t parts) {
    std::array<char, 64> name{};
    std::snprintf(name.data(), name.size(), "part-%05u-of-%05u.safetensors", part, parts);
    return name.data();
}

std::optional<Version> version_in(const std::string& name) {
    Version version;
    int used = 0;
    unsigned long long history = 0;
    unsigned long long round = 0;
    unsigned long long step = 0;
    if (std::sscanf(name.c_str(), "%20llu-%20llu-%20llu%n", &history, &round, &step, &used) != 3 ||
        static_cast<std::size_t>(used) != name.size()) {
        return std::nullopt;
    }
    version = {history, round, step};
    return version;
}

struct Part {
    std::uint32_t part = 0;
    std::uint32_t parts = 1;
};
std::optional<Part> part_in(const std::string& name) {
    Part found;
    if (std::sscanf(name.c_str(), "part-%9u-of-%9u", &found.part, &found.parts) != 2 ||
        found.parts == 0 || found.parts > kPartsMax || found.part >= found.parts ||
        name != file_name(found.part, found.parts)) {
        return std::nullopt;
    }
    return found;
}

/// The versions in the folder of a state, the latest first.
std::map<Version, fs::path, std::greater<>> versions_in(const fs::path& folder) {
    std::map<Version, fs::path, std::greater<>> versions;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        if (const auto version = version_in(at->path().filename().string())) {
            versions.emplace(*version, at->path());
        }
    }
    return versions;
}

Failure failed(const char* call, const fs::path& file) {
    return system_failure(std::string(call) + " " + file.string(), errno);
}

Result<void> sync_folder(const fs::path& folder) {
    const UniqueFd file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!file || ::fsync(file.get()) != 0) {
        return failed("fsync", folder);
    }
    return {};
}

/// Several agents, and threads of one, may write the same file.
Result<void> write_atomically(const fs::path& path, std::span<const std::byte> bytes,
                              const std::atomic<bool>* stop = nullptr) {
    static std::atomic<unsigned> number = 0;
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    const fs::path partial = path.string() + "." + host.data() + "-" + std::to_string(::getpid()) +
                             "-" + std::to_string(number++) + ".partial";
    const auto written = [&]() -> Result<void> {
        Result<UniqueFd> file =
            files::open_own(partial.string(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (!file) {
            return Failure(Errc::system, partial.string() + ": " + file.error().detail);
        }
        for (std::size_t at = 0; at < bytes.size();) {
            if (stop != nullptr && stop->load()) {
                return Failure(Errc::deadline_exceeded,
                               "the writing of " + path.string() + " was ended");
            }
            const std::size_t count = std::min(kWriteBytes, bytes.size() - at);
            const ssize_t done = ::write(file->get(), bytes.data() + at, count);
            if (done < 0 && errno == EINTR) {
                continue;
            }
            if (done < 0) {
                return failed("write", partial);
            }
            at += static_cast<std::size_t>(done);
        }
        if (::fsync(file->get()) != 0) {
            return failed("fsync", partial);
        }
        if (::rename(partial.c_str(), path.c_str()) != 0) {
            return failed("rename", partial);
        }
        return sync_folder(path.parent_path());
    }();
    if (!written) {
        ::unlink(partial.c_str());
    }
    return written;
}

}  // namespace

Result<MappedFile> MappedFile::open(const fs::path& path) {
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status{};
    if (!file || ::fstat(file.get(), &status) != 0) {
        return failed("open", path);
    }
    if (!S_ISREG(status.st_mode) || status.st_size <= 0) {
        return invalid_argument(path.string() + " is no file with a snapshot");
    }
    const auto bytes = static_cast<std::size_t>(status.st_size);
    void* const memory = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (memory == MAP_FAILED) {
        return failed("mmap", path);
    }
    return MappedFile(static_cast<const std::byte*>(memory), bytes);
}

MappedFile::~MappedFile() {
    if (memory_ != nullptr) {
        ::munmap(const_cast<std::byte*>(memory_), bytes_);
    }
}

fs::path Folder::folder_of(const std::string& name, const Version& version) const {
    std::array<char, 80> text{};
    std::snprintf(text.data(), text.size(), "%020llu-%06llu-%09llu",
                  static_cast<unsigned long long>(version.history),
                  static_cast<unsigned long long>(version.round),
                  static_cast<unsigned long long>(version.step));
    return path_ / name / text.data();
}

fs::path Folder::file_of(const PartId& id, const Version& version) const {
    return folder_of(id.name, version) / file_name(id.part, id.parts);
}

Result<void> Folder::write(const PartId& id, const Version& version,
                           std::span<const std::byte> image, const std::atomic<bool>* stop) const {
    const fs::path file = file_of(id, version);
    std::error_code error;
    if (fs::file_size(file, error) != image.size() || error) {
        if (Result<void> made = files::make_own_folder(file.parent_path().string()); !made) {
            return Failure(Errc::system, file.parent_path().string() + ": " + made.error().detail);
        }
        if (Result<void> written = write_atomically(file, image, stop); !written) {
            fs::remove(file.parent_path(), error);  // If nothing is in it.
            return written;
        }
    }
    return write_index(id, version);
}

bool Folder::is_complete(const std::string& name, const Version& version) const {
    std::error_code error;
    return fs::exists(folder_of(name, version) / kIndex, error);
}

Result<void> Folder::write_index(const PartId& id, const Version& version) const {
    const fs::path folder = folder_of(id.name, version);
    nlohmann::json files = nlohmann::json::array();
    for (std::uint32_t part = 0; part < id.parts; ++part) {
        const std::string name = file_name(part, id.parts);
        std::error_code error;
        const std::uint64_t bytes = fs::file_size(folder / name, error);
        if (error) {
            return {};
        }
        files.push_back({{"file", name}, {"bytes", bytes}});
    }
    const std::string text = json_text(nlohmann::json{{"format", "regroup snapshot 1"},
                                                      {"state", id.name},
                                                      {"history", version.history},
                                                      {"round", version.round},
                                                      {"step", version.step},
                                                      {"parts", std::move(files)}}) +
                             "\n";
    return write_atomically(folder / kIndex, std::as_bytes(std::span(text)));
}

std::vector<Holding> Folder::list(const std::string& name) const {
    std::vector<Holding> holdings;
    for (const auto& [version, folder] : versions_in(path_ / name)) {
        std::set<std::pair<std::uint32_t, std::uint32_t>> found;  // By their number, the part.
        std::error_code error;
        for (fs::directory_iterator at(folder, error), end; !error && at != end;
             at.increment(error)) {
            if (const auto part = part_in(at->path().filename().string())) {
                found.emplace(part->parts, part->part);
            }
        }
        for (const auto& [parts, part] : found) {
            holdings.push_back({Holding::Place::folder, part, parts, version});
        }
    }
    return joined(holdings);
}

void Folder::prune(const std::string& name) const {
    const auto versions = versions_in(path_ / name);
    std::size_t complete = 0;
    std::size_t seen = 0;
    const bool any_complete = std::any_of(versions.begin(), versions.end(), [](const auto& each) {
        return fs::exists(each.second / kIndex);
    });
    for (const auto& [version, folder] : versions) {
        const bool is_kept = any_complete ? complete < kCompleteKept : seen < kIncompleteKept;
        ++seen;
        complete += fs::exists(folder / kIndex) ? 1 : 0;
        if (!is_kept) {
            std::error_code error;
            // The index first: without it no reader takes the rest for complete.
            fs::remove(folder / kIndex, error);
            fs::remove_all(folder, error);
        }
    }
}

}  // namespace regroup::snapshot
