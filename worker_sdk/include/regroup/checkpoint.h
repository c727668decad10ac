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
    /// The round that saves, as Context::round has it; 0 if it does not matter. With it, a worker
    /// whose round is over cannot overwrite what a later round has saved; see `save`.
    std::uint64_t round = 0;
};

/// The state of a training job: named tensors, and named texts and numbers such as the step.
///
/// It holds what belongs to the job as a whole, nothing of any one rank, and so can be resumed
/// under another world size. By habit rank 0 saves, and loads for all; the others get the values
/// from rank 0 when DistributedDataParallel is constructed.
///
/// A value: it owns copies of everything set, so the training may go on while it is being saved.
/// Not thread-safe.
class Checkpoint {
   public:
    // Setting a name again replaces what it had, whatever its kind.

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

    /// Writes `path` so that a reader finds the old checkpoint or the new one, each in full,
    /// wherever this process is killed: into a file beside it, which is flushed to the disk and
    /// then renamed. Blocks until the new one is safe on the disk. What earlier, killed writers
    /// left behind is removed. Throws Error `system` naming the call and the file (a full disk, no
    /// permission); the previous checkpoint is then untouched.
    ///
    /// With `options.round`: throws Error `fenced`, having changed nothing, if that round is over
    /// as far as the agent knows, or if `path` was saved by a later round of this training; and
    /// `deadline_exceeded` if another process has been renaming at the same `path` for 30 seconds.
    /// Writers keep each other out by a lock on PATH.lock, which stays behind, empty. A training
    /// that begins anew from a checkpoint may overwrite it, whatever round has saved it; one that
    /// begins from nothing may not overwrite a checkpoint with a date in the future.
    ///
    /// On the thread of an ElasticLoop, in a step and in no section, it is a section by itself.
    void save(const std::filesystem::path& path, const CheckpointOptions& options = {}) const;

    /// Reads and verifies `path`. Throws Error: `system` if it cannot be read, `invalid_argument`
    /// saying what is wrong with it: truncated, damaged, not a checkpoint.
    [[nodiscard]] static Checkpoint load(const std::filesystem::path& path);

    /// The same, but nothing if there is no such file.
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
    std::string origin_ = "checkpoint";  // for messages: which file this came from
};

}  // namespace regroup
