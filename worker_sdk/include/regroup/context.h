// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/store.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace regroup {

class RoundScope;

/// Who this process is in its job: what the launcher left in the environment, or a world of one.
struct Context {
    std::string job = "none";            ///< TORCHELASTIC_RUN_ID.
    std::uint32_t rank = 0;              ///< RANK.
    std::uint32_t world_size = 1;        ///< WORLD_SIZE.
    std::uint32_t local_rank = 0;        ///< LOCAL_RANK.
    std::uint32_t local_world_size = 1;  ///< LOCAL_WORLD_SIZE.
    std::uint32_t group_rank = 0;        ///< GROUP_RANK: the node's rank.
    std::uint32_t group_world_size = 1;  ///< GROUP_WORLD_SIZE: the number of nodes.
    std::uint32_t restart_count = 0;     ///< TORCHELASTIC_RESTART_COUNT.
    std::uint32_t max_restarts = 0;      ///< TORCHELASTIC_MAX_RESTARTS.
    std::uint64_t round = 0;             ///< REGROUP_ROUND; 0 without the regroup launcher.
    std::string master_addr;             ///< MASTER_ADDR; empty in a world of one.
    std::uint16_t master_port = 0;       ///< MASTER_PORT.
    /// True if the launcher serves the store (TORCHELASTIC_USE_AGENT_STORE=True). Otherwise rank 0
    /// serves it itself, in this process, for as long as its store lives: it is to leave last. A
    /// world of one needs none and keeps its store in memory.
    bool agent_store = false;
    /// REGROUP_CPU_TRANSPORT: how the "cpu" back end carries collectives. "auto": in shared memory
    /// where all ranks of a group are on one node and can reach each other's, else over TCP; "tcp":
    /// never in shared memory; "shm": forming a group that cannot share memory is an error that
    /// says why. The same on all ranks.
    std::string cpu_transport = "auto";
    /// Limit for connecting to the store and for its waits.
    std::chrono::nanoseconds store_timeout = std::chrono::minutes(5);

    /// The store of this round, connected on first use and kept; copies of a Context share it. Any
    /// thread. Throws Error as connect_store; `system` if rank 0 is to serve it and cannot.
    [[nodiscard]] std::shared_ptr<Store> store() const;
    /// Makes `store` the one that `store()` returns, for this Context and later copies of it.
    void use_store(std::shared_ptr<Store> store);

    /// Ends as `fenced` whatever waits on behalf of this Context and its copies, now and in future:
    /// calls of the store that it connected, the forming of groups, and operations of the groups
    /// that were formed from it. For good. Any thread; waits for nobody.
    void interrupt(std::string_view reason) const noexcept;

    /// The habit of training scripts: only rank 0 prints and writes checkpoints.
    [[nodiscard]] bool is_main_process() const noexcept { return rank == 0; }

    /// Reads the variables above. With none of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set it
    /// is a world of one; with some of them it is an Error `invalid_argument` that names what is
    /// missing or malformed. LOCAL_RANK and the rest fall back to RANK and WORLD_SIZE.
    ///
    /// With neither RANK nor WORLD_SIZE, a process that an MPI launcher started (Open MPI's mpirun,
    /// MPICH's or Intel's mpiexec, Slurm's srun) takes ranks and sizes from that launcher. On one
    /// node the ranks meet at 127.0.0.1 and a port that follows from the launcher's name for the
    /// job, on several at MASTER_ADDR and MASTER_PORT (srun: the first host of the step, without
    /// them too). What cannot be told is an Error `invalid_argument` that names the variable to
    /// set.
    ///
    /// Under the regroup launcher the first call also attaches this process to its agent, which
    /// starts a thread of the SDK's own (see ElasticLoop), and takes REGROUP_AGENT_SOCKET and
    /// REGROUP_WORKER_ID out of the environment: they are for this process, not for its children. A
    /// process that was started ahead of its round (REGROUP_PRESTARTED=1) blocks here until it is
    /// given a place, which it then finds in the variables above too, and throws Error
    /// `disconnected` if its agent goes away before.
    [[nodiscard]] static Context from_environment();

   private:
    friend struct ContextScope;
    struct StoreSlot;
    [[nodiscard]] static std::shared_ptr<StoreSlot> make_store_slot();
    [[nodiscard]] static std::shared_ptr<RoundScope> make_scope();

    std::shared_ptr<StoreSlot> store_slot_ = make_store_slot();
    std::shared_ptr<RoundScope> scope_ = make_scope();
};

}  // namespace regroup
