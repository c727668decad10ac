// SPDX-License-Identifier: Apache-2.0
// What tests see of the stand-in besides NCCL's own interface; found with dlsym.
#pragma once

#include <cstddef>

extern "C" {

/// What a stream is to the stand-in: something that carries out one call after the other.
struct StandInStream {
    void (*enqueue)(StandInStream* self, void (*run)(void*), void* argument);
};

/// Copies the journal so far, one event in a line, and returns its whole length.
std::size_t stand_in_nccl_journal(char* into, std::size_t bytes);
/// Forgets journal and faults.
void stand_in_nccl_reset();
/// "init_never", "async_error_at=3", "system_error_at=3", "op_never_at=3",
/// "launch_never_at=3" of each communicator,
/// "split_error", "graph_alive" (finalize and abort do not end), "rank=1" for one rank alone;
/// separated by blanks. Replaces what was set.
void stand_in_nccl_faults(const char* text);
}
