// SPDX-License-Identifier: Apache-2.0
// All headers of the worker SDK, except torch.h and the C API.
#pragma once

#include <regroup/checkpoint.h>                 // Checkpoint
#include <regroup/clip_grad_norm.h>             // clip_grad_norm: gradients of limited length
#include <regroup/communication_hook.h>         // CommunicationHook: compressed gradients
#include <regroup/context.h>                    // Context: rank, world size, restart count
#include <regroup/cuda.h>                       // GPUs: availability, device of this process
#include <regroup/data_partitioner.h>           // DataPartitioner
#include <regroup/distributed_data_parallel.h>  // DistributedDataParallel
#include <regroup/distributed_sampler.h>        // DistributedSampler
#include <regroup/elastic_loop.h>               // ElasticLoop: training that survives losses
#include <regroup/errc.h>                       // Errc: the codes of errors
#include <regroup/error.h>                      // Error: the one exception
#include <regroup/evaluation.h>                 // Evaluator, gather_in_order
#include <regroup/exact_sum.h>                  // ExactSum
#include <regroup/failure.h>                    // report_fatal: why this process ends
#include <regroup/flight_recorder.h>            // flight_record: the last operations, as JSON
#include <regroup/fused_optimizer.h>            // FusedOptimizer: SGD, Adam, AdamW
#include <regroup/grad_scaler.h>                // GradScaler: loss scaling
#include <regroup/helper_process.h>             // obey_only_parent: signals of a scheduler
#include <regroup/join.h>                       // Join: ranks with different numbers of batches
#include <regroup/lr_schedule.h>                // CosineWarmRestarts
#include <regroup/main_process.h>               // log_main, run_on_main
#include <regroup/process_group.h>              // ProcessGroup, Work, ReduceOp
#include <regroup/sharded_optimizer.h>          // ShardedOptimizer: ZeRO, stage 1
#include <regroup/snapshot.h>                   // Snapshot: state kept beside the workers
#include <regroup/spawn.h>                      // spawn: processes of one function
#include <regroup/stop.h>                       // stop_requested: all ranks stop at one step
#include <regroup/store.h>                      // Store: the key-value store of a round
#include <regroup/sync_batch_norm.h>            // SyncBatchNorm: statistics of all ranks
#include <regroup/tensor_view.h>                // TensorView, DType
#include <regroup/watched_group.h>              // WatchedGroup: collectives of other libraries
