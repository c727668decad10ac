// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/watch/stack_saver.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"

namespace regroup::agent {

/// How PyTorch's NCCL back end writes its record, if the user has set these variables: it reads the
/// FIFO PIPE + rank + ".pipe" about once a second, and when something is in it, writes the pickle
/// DUMP + rank.
struct TorchPipe {
    std::string pipe;  ///< TORCH_NCCL_DEBUG_INFO_PIPE_FILE; empty: no process is asked.
    std::string dump;  ///< TORCH_FR_DUMP_TEMP_FILE, or TORCH_NCCL_DEBUG_INFO_TEMP_FILE.
};

struct RecordOptions {
    TorchPipe torch;
    /// Time limit for all workers together. Workers that have not answered by then have no record.
    Duration limit = std::chrono::seconds(4);
};

struct SavedRecords {
    std::size_t files = 0;
    std::string complaint;  ///< The first error, in a sentence; or empty.
};

/// Writes a file that only this user can read. Errors: as of files::open_own(), naming the file.
[[nodiscard]] Result<void> write_private_file(const std::string& path, std::string_view text);

/// Longer files are not copied.
inline constexpr std::size_t kRecordBytesMax = std::size_t{64} << 20U;

/// Collects the flight records of workers on whose round a hang was reported. A worker with the SDK
/// writes FOLDER/rankN.regroup.json and FOLDER/rankN.BACKEND.json itself. A process with PyTorch's
/// NCCL back end is asked by TorchPipe, and its pickle is copied to FOLDER/rankN.nccl.pickle.
///
/// One thread; all references outlive this object.
class RecordSaver {
   public:
    using Answer = std::function<void(std::size_t files, const std::string& complaint)>;
    /// Asks a worker to write its records to files that begin with `prefix`. Never calls `answer`
    /// before it returns; may never call it.
    using Ask =
        std::function<void(std::uint32_t local_rank, const std::string& prefix, Answer answer)>;

    RecordSaver(boost::asio::io_context& io, const Clock& clock, RecordOptions options, Ask ask);
    ~RecordSaver();
    RecordSaver(const RecordSaver&) = delete;
    RecordSaver& operator=(const RecordSaver&) = delete;

    /// Calls `on_done` from the event loop once all workers have answered, at the latest after the
    /// limit. `folder` exists. A second call ends the first one and drops its `on_done`.
    void save(const std::filesystem::path& folder, const std::vector<HangSubject>& subjects,
              std::function<void(const SavedRecords&)> on_done);

   private:
    struct Run;

    boost::asio::io_context& io_;
    const Clock& clock_;
    RecordOptions options_;
    Ask ask_;
    std::shared_ptr<Run> run_;
};

}  // namespace regroup::agent
