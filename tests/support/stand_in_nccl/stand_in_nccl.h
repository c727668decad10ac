// SPDX-License-Identifier: Apache-2.0
// The interface of the stand-in for tests, besides NCCL's; found with dlsym.
#pragma once

#include <cstddef>

extern "C" {

/// A stream of the stand-in: it runs one call after the other.
struct StandInStream {
    void (*enqueue)(StandInStream* self, void (*run)(void*), void* argument);
    bool (*is_captured)(const StandInStream* self);
};

/// Copies the journal so far, one event a line, and returns its full length.
std::size_t stand_in_nccl_journal(char* into, std::size_t bytes);
/// Clears journal and faults.
void stand_in_nccl_reset();
/// "init_never", "async_error_at=3", "system_error_at=3", "op_never_at=3", "launch_never_at=3" of
/// each communicator, "split_error", "graph_alive" (finalize and abort do not end), "rank=1" for
/// one rank only, "version=22501" to be another NCCL; separated by blanks. Replaces earlier faults.
void stand_in_nccl_faults(const char* text);
}
