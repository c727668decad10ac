// SPDX-License-Identifier: Apache-2.0
//
// Files of records that all have one size. On disk a record has the same bytes as in memory, since
// writer and reader come from one build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace regroup::chaos {

/// CLOCK_MONOTONIC, in ns.
[[nodiscard]] std::int64_t monotonic_ns();

/// A new file of this process in a folder. A failed write ends the process.
class RecordFile {
   public:
    /// `extension`: with its dot.
    RecordFile(const std::string& folder, const std::string& extension);
    ~RecordFile();
    RecordFile(const RecordFile&) = delete;
    RecordFile& operator=(const RecordFile&) = delete;

    void append(std::span<const std::byte> record);

   private:
    int fd_ = -1;
};

/// The records of one process, in its order.
template <class Record>
struct Records {
    std::string name;
    std::vector<Record> records;
};

struct RecordBytes {
    std::string name;
    std::string bytes;
};
/// The files in the folder with that extension, by name.
[[nodiscard]] std::vector<RecordBytes> read_record_files(const std::string& folder,
                                                         const std::string& extension);

/// The records in these files. Incomplete records of killed processes are left out.
template <class Record>
[[nodiscard]] std::vector<Records<Record>> read_records(const std::string& folder,
                                                        const std::string& extension) {
    std::vector<Records<Record>> result;
    for (const RecordBytes& file : read_record_files(folder, extension)) {
        Records<Record> log{file.name, {}};
        log.records.resize(file.bytes.size() / sizeof(Record));
        if (!log.records.empty()) {  // Empty if the process was killed before it wrote a record.
            std::memcpy(log.records.data(), file.bytes.data(), log.records.size() * sizeof(Record));
        }
        result.push_back(std::move(log));
    }
    return result;
}

}  // namespace regroup::chaos
