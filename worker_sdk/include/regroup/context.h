// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/store.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

class RoundScope;

/// The place of this process in its job: read from the environment that the launcher set, or a
/// world of one.
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
    /// REGROUP_MASTER_NODE_ADDR: the address of group rank 0's node, where `master_addr` may be
    /// this node's agent, which relays to the store. Groups listen on the address from which that
    /// node is reached. Empty: `master_addr`.
    std::string master_node_addr;
    /// True if the launcher serves the store (TORCHELASTIC_USE_AGENT_STORE=True). Otherwise the
    /// process of rank 0 serves it while its store object lives, so rank 0 must leave last. A world
    /// of one keeps its store in memory.
    bool agent_store = false;
    /// REGROUP_CPU_TRANSPORT: the transport of collectives in the "cpu" back end. "auto": shared
    /// memory among the ranks of each node if all nodes can, and TCP between nodes; "tcp": always
    /// TCP; "shm": forming a group that is not on one node, or cannot share memory, throws an Error
    /// with the reason. The same on all ranks.
    std::string cpu_transport = "auto";
    /// A secret of the ranks of the job: with it the ranks that form a group prove to each other
    /// that they belong to it, so that no other process gets in (docs/collectives.md). Under the
    /// regroup launcher the agents give each round a secret of its own. Without it the contents of
    /// the file that REGROUP_GROUP_SECRET_FILE names, or what the program sets here; at least
    /// kGroupSecretBytesMin bytes from a random generator. Empty: none. The same on all ranks.
    std::string group_secret;
    static constexpr std::size_t kGroupSecretBytesMin = 16;
    /// REGROUP_GROUP_ENCRYPTION: encrypts what ranks send to each other over TCP, in the "cpu" back
    /// end. Requires a secret. The same on all ranks.
    bool group_encryption = false;
    /// Limit for connecting to the store and for its waits.
    std::chrono::nanoseconds store_timeout = std::chrono::minutes(5);

    /// The store of this round, connected on first use; copies of a Context share it. Any thread.
    /// Throws Error as connect_store; `system` if rank 0 should serve the store and cannot.
    [[nodiscard]] std::shared_ptr<Store> store() const;
    /// Sets the store that `store()` returns, for this Context and later copies of it.
    void use_store(std::shared_ptr<Store> store);

    /// Ends all waiting on behalf of this Context and its copies as `fenced`, now and in future:
    /// calls of the store that it connected, the forming of groups, and operations of groups formed
    /// from it. Cannot be undone. Any thread; does not block.
    void interrupt(std::string_view reason) const noexcept;
    /// Waits at most `limit` until this Context is interrupted, as at the end of its round; false
    /// if it is not. Any thread. The Context may be destroyed meanwhile.
    [[nodiscard]] bool await_end(std::chrono::nanoseconds limit) const;

    /// The context of some of this context's ranks, as if they were the world; the i-th of `ranks`
    /// becomes rank i. This rank is among them. Only they form groups of it, unlike
    /// `ProcessGroup::new_group`. Groups created from it end when this context is interrupted, as
    /// long as the result or a copy of it lives. Throws Error `invalid_argument`, which names the
    /// rank, for ranks that are no group.
    [[nodiscard]] Context of_ranks(const std::vector<std::uint32_t>& ranks) const;

    /// True on rank 0, which prints and writes checkpoints in most training scripts.
    [[nodiscard]] bool is_main_process() const noexcept { return rank == 0; }

    /// Reads the variables above. If none of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT is set,
    /// the result is a world of one. If only some of them are set, it throws Error
    /// `invalid_argument`, which names the missing or malformed variable. LOCAL_RANK and the rest
    /// default to values from RANK and WORLD_SIZE.
    ///
    /// If neither RANK nor WORLD_SIZE is set, a process of an MPI launcher (Open MPI's mpirun,
    /// MPICH's or Intel's mpiexec, Slurm's srun) takes ranks and sizes from that launcher. On one
    /// node the ranks meet at 127.0.0.1 and a port that is derived from the launcher's name for the
    /// job. On several nodes they meet at MASTER_ADDR and MASTER_PORT; with srun these default to
    /// the first host of the step. If a value is missing, it throws Error `invalid_argument`, which
    /// names the variable to set.
    ///
    /// Under the regroup launcher the first call also attaches this process to its agent. This
    /// starts a thread of the SDK (see ElasticLoop) and removes REGROUP_AGENT_SOCKET and
    /// REGROUP_WORKER_ID from the environment, so that children of this process do not use them. In
    /// a process that was started ahead of its round (REGROUP_PRESTARTED=1) the call blocks until
    /// the process has a rank, and then sets the variables above. It throws Error `disconnected` if
    /// the agent goes away before.
    [[nodiscard]] static Context from_environment();

    /// `master_node_addr` for a Context that the program fills in: REGROUP_MASTER_NODE_ADDR if
    /// MASTER_ADDR is `master_addr`, else empty.
    [[nodiscard]] static std::string master_node_of(std::string_view master_addr);

   private:
    friend struct ContextScope;
    struct StoreSlot;
    [[nodiscard]] static std::shared_ptr<StoreSlot> make_store_slot();
    [[nodiscard]] static std::shared_ptr<RoundScope> make_scope();

    std::shared_ptr<StoreSlot> store_slot_ = make_store_slot();
    std::shared_ptr<RoundScope> scope_ = make_scope();
    std::shared_ptr<void> tie_{};  // To the context whose ranks these are some of.
};

}  // namespace regroup
