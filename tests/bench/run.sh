#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Runs all benchmarks one after the other: launch, the moments of a job, restart, death notices,
# recovery, elastic steps, the rendezvous' state machine, the journal, the plugin for NCCL, the store, copies, snapshots,
# all-reduce, messages, rendezvous traffic, data-parallel steps, PyTorch's back ends and all-reduce on
# slow links. The peers are torchrun, mpirun, Redis, gloo, torch.load, DLRover and PyTorch's
# DistributedDataParallel:
#
#     sh tests/bench/run.sh BUILD_DIR
#
# docs/benchmarks.md describes the methods. On a machine with other load, set
# REGROUP_BENCH_PREFIX="chrt -r 20" (as root), which gives the benchmarks priority over it.
#
# REGROUP_PYTORCH_CURRENT and REGROUP_PYTORCH_DEBIAN name the PyTorch releases for the store
# benchmark, as for the tests (cmake/pytorch.cmake).
set -eu

build=$(cd "${1:?usage: sh tests/bench/run.sh BUILD_DIR}" && pwd) # some programs run in their own folders
here=$(dirname "$0")
bench=$build/tests/bench
regroup=$build/launcher/regroup
chaos_worker=$build/tests/chaos/chaos_worker
prefix=${REGROUP_BENCH_PREFIX:-}

for program in "$regroup" "$bench/launch_bench" "$bench/job_bench" "$bench/restart_bench" \
        "$bench/store_bench" "$bench/all_reduce_bench" "$bench/copy_bench" "$bench/message_bench" "$bench/traffic_bench" "$bench/ddp_bench" \
        "$bench/links_bench" "$bench/links_rank" "$bench/death_bench" "$bench/death_victim" \
        "$bench/core_bench" "$bench/scale_bench" "$bench/metrics_bench" "$bench/journal_bench" "$bench/nccl_profiler_bench" "$bench/recover_bench" "$bench/elastic_bench" "$bench/elastic_step_worker" \
        "$bench/snapshot_bench" "$bench/snapshot_job_bench" "$bench/snapshot_worker" "$chaos_worker"; do
    [ -x "$program" ] || { echo "bench: $program is missing; run: make bench" >&2; exit 1; }
done

$prefix "$bench/launch_bench" "$regroup" "$bench/bare_loop"
echo
$prefix "$bench/launch_bench" "$regroup" "$bench/bare_loop" 5 64 256 1000
echo
$prefix "$bench/job_bench" "$regroup" "$bench/restart_worker"
echo
$prefix "$bench/restart_bench" "$regroup" "$bench/restart_worker"
echo
$prefix "$bench/death_bench" "$bench/death_victim"
echo
$prefix "$bench/recover_bench" "$regroup" "$chaos_worker"
echo
$prefix "$bench/elastic_bench" "$regroup" "$bench/elastic_step_worker"
echo
$prefix "$bench/core_bench"
echo
$prefix "$bench/scale_bench" --svg "$build/scale.svg"
echo
$prefix "$bench/metrics_bench"
echo
$prefix "$bench/journal_bench"
echo
$prefix "$bench/nccl_profiler_bench" "$build/launcher/libnccl-profiler-regroup.so"
echo
$prefix "$bench/store_bench" "$regroup" "$bench/echo_server" \
    "$here/../pytorch/store/store_program.py" \
    "current=${REGROUP_PYTORCH_CURRENT:-$build/../pytorch/bin/python}" \
    "1.13=${REGROUP_PYTORCH_DEBIAN:-/usr/bin/python3}"
echo
$prefix "$bench/copy_bench"
echo
$prefix "$regroup" run --standalone --nproc-per-node=1 "$bench/snapshot_bench"
echo
$prefix "$bench/snapshot_job_bench" "$regroup" "$bench/snapshot_worker"
echo
peers=$build/../pytorch-peers/bin/python
if [ -x "$peers" ]; then
    PYTHONPATH=$here/../../python REGROUP_LIBRARY=$build/libregroup.so \
        $prefix "$regroup" run --standalone --nproc-per-node=1 --max-restarts=1 "$peers" \
        "$here/snapshot_peers.py"
else
    echo "snapshot_peers: left out, since there is no $peers (sh tests/pytorch/setup.sh peers)"
fi
echo
$prefix "$bench/all_reduce_bench" "$here/all_reduce_peer.py" \
    "2.14=${REGROUP_PYTORCH_CURRENT:-$build/../pytorch/bin/python}" \
    "1.13=${REGROUP_PYTORCH_DEBIAN:-/usr/bin/python3}"
echo
$prefix "$bench/message_bench" "$here/message_mpi.c"
echo
"$bench/traffic_bench" 128 "$here/c10d_traffic.py"
echo
$prefix "$bench/ddp_bench" "$regroup" "$bench/ddp_step_worker" "$bench/ddp_perceptron_worker" \
    "$here/ddp_torch.py" \
    "current=${REGROUP_PYTORCH_CURRENT:-$build/../pytorch/bin/python}" \
    "1.13=${REGROUP_PYTORCH_DEBIAN:-/usr/bin/python3}"
echo
pytorch=${REGROUP_PYTORCH_CURRENT:-$build/../pytorch/bin/python}
if [ -x "$pytorch" ]; then
    PYTHONPATH=$here/../../python REGROUP_LIBRARY=$build/libregroup.so \
        $prefix "$pytorch" "$here/torch_backend.py"
    echo
    $prefix "$pytorch" "$here/pytorch_restart.py" "$regroup"
    echo
    [ -x "$peers" ] || peers=$pytorch  # Without torchft.
    torchft=$build/../pytorch-torchft/bin/python
    [ -x "$torchft" ] || torchft=
    PYTHONPATH=$here/../../python REGROUP_LIBRARY=$build/libregroup.so \
        $prefix "$peers" "$here/torch_recovery.py" "$regroup" 20 $torchft
    echo
    PYTHONPATH=$here/../../python REGROUP_LIBRARY=$build/libregroup.so \
        "$pytorch" "$here/hang_injection.py" "$regroup"
else
    echo "torch_backend, pytorch_restart, torch_recovery, hang_injection: left out, since there is no $pytorch"
fi
echo
if [ -x "$bench/nccl_hang_worker" ]; then
    python3 "$here/hang_injection.py" "$regroup" --program=nccl --kernels --jobs=4
else
    echo "hang_injection over NCCL: left out, since there is no $bench/nccl_hang_worker (it needs CUDA's headers)"
fi
echo
"$bench/links_bench" "$bench/links_rank" --svg "$build/naive_and_ring.svg"
