// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/tensor_view.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/clock.h"

namespace regroup {

/// Keeps the last operations of a process: see regroup/flight_recorder.h. Any thread.
class FlightRecorder {
   public:
    static constexpr std::size_t kEntriesMax = 2000;
    static constexpr std::size_t kGroupsMax = 256;

    struct Group {
        std::string name{};
        std::string backend{};               ///< "nccl", "gloo": the names that PyTorch knows.
        std::vector<std::uint32_t> ranks{};  ///< In the world.
        std::uint32_t rank = 0;              ///< This process's rank in the group.
        std::uint64_t round = 0;             ///< Set by add().
    };
    struct Operation {
        const char* name = "";  ///< A literal.
        std::uint64_t number = 0;
        bool is_message = false;
        bool is_send = false;
        std::uint32_t peer = 0;  ///< Messages only.
        std::size_t input_count = 0;
        std::size_t output_count = 0;
        DType dtype = DType::uint8;
        Duration timeout{};
    };

    /// The number of the new group.
    [[nodiscard]] std::uint32_t add(Group group);
    /// The number of the new entry, for the following calls. An entry may have been overwritten.
    [[nodiscard]] std::uint64_t issued(std::uint32_t group, const Operation& operation, Instant at);
    void started(std::uint64_t entry, Instant at);
    void completed(std::uint64_t entry, Instant at);
    /// The words of `rank` of a group about itself.
    void note_standing(std::uint32_t group, std::uint32_t rank, std::string text);

    /// Groups that are added from now on belong to this round.
    void enter_round(std::uint64_t round) noexcept { round_ = round; }
    [[nodiscard]] std::uint64_t round() const noexcept { return round_; }

    [[nodiscard]] bool has_groups() const;
    [[nodiscard]] std::string json() const;

   private:
    /// An entry as it was read, and the words that hold it.
    struct Entry {
        std::uint64_t number = 0;  ///< From 1.
        std::uint32_t group = 0;
        Operation operation{};
        Instant issued_at{};
        std::optional<Instant> started_at{};
        std::optional<Instant> completed_at{};
    };
    // NOLINTBEGIN(readability-identifier-naming): they are indices, and used as constants.
    enum Word : std::size_t {
        kName,
        kGroup,
        kNumber,
        kFlags,
        kPeer,
        kInputCount,
        kOutputCount,
        kDType,
        kTimeout,
        kIssuedAt,
        kStartedAt,
        kCompletedAt,
        kWords,
    };
    // NOLINTEND(readability-identifier-naming)
    /// Written by one thread at a time, and read at any time: an operation must not wait for a
    /// reader. The number is 0 while the words change.
    struct Slot {
        std::atomic<std::uint64_t> number = 0;
        std::array<std::atomic<std::uint64_t>, kWords> words{};
    };
    struct Recorded {
        std::uint32_t number = 0;
        Group group{};
        std::map<std::uint32_t, std::string> standings{};
    };

    [[nodiscard]] Slot& slot_of(std::uint64_t entry) noexcept {
        return slots_[entry % kEntriesMax];
    }
    void set_time(std::uint64_t entry, Word word, Instant at) noexcept;
    [[nodiscard]] std::optional<Entry> read(std::uint64_t number) const;
    [[nodiscard]] std::vector<Entry> read_all() const;
    void write_entry(std::string& out, const Entry& entry,
                     std::chrono::nanoseconds wall_offset) const;

    std::vector<Slot> slots_ = std::vector<Slot>(kEntriesMax);
    std::atomic<std::uint64_t> entry_count_ = 0;
    std::atomic<std::uint64_t> round_ = 0;

    mutable std::mutex mutex_;
    std::deque<Recorded> groups_;    // guarded by mutex_; the last ones
    std::uint32_t group_count_ = 0;  // guarded by mutex_
};

/// The recorder of this process. It outlives every group, since a thread may end late.
[[nodiscard]] FlightRecorder& flight_recorder();

/// Names the file that `write_flight_record` writes, and the signal at which a thread of the SDK
/// does: 0 for none. An empty prefix: neither.
void configure_flight_record(const std::string& prefix, int signal_number);
/// The file's name ends with `rank` from now on, and new groups belong to `round`.
void set_flight_record_place(std::uint32_t rank, std::uint64_t round) noexcept;
/// Writes the file, if one was named. A failure is printed to stderr.
void write_flight_record() noexcept;
/// Writes a record to `path`; the file is never incomplete. Throws Error `system`.
void write_record_file(const std::string& path, const std::string& text);
/// Writes PREFIX.regroup.json, if this process has had groups, and PREFIX.BACKEND.json for each
/// record of PyTorch. Returns the number of files. Throws Error `system`.
[[nodiscard]] std::uint32_t write_all_records(const std::string& prefix);

}  // namespace regroup
