// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/record_file.h"

#include <algorithm>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

#include "rendezvous/base/ensure.h"
#include "tests/support/program.h"

namespace regroup::chaos {

std::int64_t monotonic_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

RecordFile::RecordFile(const std::string& folder, const std::string& extension) {
    // Pids are reused in a long run.
    const std::string path = folder + "/" + std::to_string(monotonic_ns()) + "-" +
                             std::to_string(::getpid()) + extension;
    fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    ENSURE(fd_ >= 0);
}

RecordFile::~RecordFile() {
    ::close(fd_);
}

void RecordFile::append(std::span<const std::byte> record) {
    ENSURE(::write(fd_, record.data(), record.size()) == static_cast<ssize_t>(record.size()));
}

std::vector<RecordBytes> read_record_files(const std::string& folder,
                                           const std::string& extension) {
    std::vector<RecordBytes> result;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() == extension) {
            result.push_back({entry.path().stem(), testing::read_file(entry.path())});
        }
    }
    std::sort(result.begin(), result.end(),
              [](const RecordBytes& a, const RecordBytes& b) { return a.name < b.name; });
    return result;
}

}  // namespace regroup::chaos
