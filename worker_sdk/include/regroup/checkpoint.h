// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/tensor_view.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace regroup {

struct CheckpointOptions {
    /// How many earlier checkpoints stay beside the new one, as PATH.1 (the latest), PATH.2, ...
    std::size_t previous_count = 0;
    /// The round that saves (Context::round); 0 disables the check. With it, a worker whose round
    /// is over cannot overwrite the checkpoint of a later round; see `save`.
    std::uint64_t round = 0;
};

/// The state of a training job: named tensors, and named texts and numbers such as the step.
///
/// It holds state of the whole job and of no single rank, so a job can resume from it under another
/// world size. Usually rank 0 saves, and rank 0 loads for all; the others get the values from rank
/// 0 when DistributedDataParallel is constructed.
///
/// A value: it owns copies of everything set, so the training may go on during `save`. Not
/// thread-safe.
class Checkpoint {
   public:
    // Setting a name again replaces its entry, of whatever kind.

    void set_text(const std::string& name, std::string_view text);
    void set_integer(const std::string& name, std::int64_t value);
    void set_number(const std::string& name, double value);
    /// Copies the tensor.
    void set_tensor(const std::string& name, ConstTensorView tensor);

    // Reading throws Error `invalid_argument`, naming the file, if the name is missing or of
    // another kind.

    [[nodiscard]] std::string text(std::string_view name) const;
    [[nodiscard]] std::int64_t integer(std::string_view name) const;
    [[nodiscard]] double number(std::string_view name) const;
    /// Copies the tensor into `destination`, which must have its count and dtype.
    void read_tensor(std::string_view name, TensorView destination) const;
    [[nodiscard]] bool contains(std::string_view name) const;

    /// Writes `path` atomically: whenever this process is killed, a reader finds either the old
    /// checkpoint or the new one, complete. `save` writes a file beside `path`, flushes it to the
    /// disk and renames it. It blocks until the new checkpoint is on the disk, and removes
    /// temporary files of writers that were killed. Throws Error `system` naming the call and the
    /// file (a full disk, no permission); the previous checkpoint is then untouched.
    ///
    /// With `options.round`, it throws and changes nothing: Error `fenced` if the agent knows that
    /// the round is over, or if a later round of this training has saved `path`;
    /// `deadline_exceeded` if another process holds the lock for 30 seconds. The lock is on the
    /// file PATH.lock, which stays there, empty. A training that begins from a checkpoint may
    /// overwrite it, whichever round has saved it. A training that begins without a checkpoint may
    /// not overwrite one with a date in the future.
    ///
    /// On the thread of an ElasticLoop, in a step and outside sections, `save` is a section of its
    /// own.
    void save(const std::filesystem::path& path, const CheckpointOptions& options = {}) const;

    /// Reads and verifies `path`. Throws Error: `system` if it cannot be read; `invalid_argument`
    /// if it is truncated, damaged, or not a checkpoint.
    [[nodiscard]] static Checkpoint load(const std::filesystem::path& path);

    /// The same, but returns nullopt if there is no such file.
    [[nodiscard]] static std::optional<Checkpoint> load_if_present(
        const std::filesystem::path& path);

   private:
    struct Entry {
        std::string kind;  // "text", "integer", "number", or a tensor's dtype
        std::string bytes;
    };

    static Checkpoint parse(std::string_view content, const std::string& origin);
    const Entry& find(std::string_view name, std::string_view kind) const;

    std::map<std::string, Entry, std::less<>> entries_;
    std::string origin_ = "checkpoint";  // The file, for messages.
};

}  // namespace regroup
