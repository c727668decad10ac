# SPDX-License-Identifier: Apache-2.0
"""Elastic training for elastic_test.py: sums that must not depend on losses.

    elastic_job.py WAY FOLDER

WAY is what happens besides: quiet; kill (rank 1, twice); many (rank 1, in each of 30 rounds); leave
(training goes on until the node leaves); raise, save (rank 0 fails by itself in a step, or when it
saves); fatal (rank 0 gives up).
"""
import array
import faulthandler
import gc
import os
import signal
import struct
import sys

import regroup

BATCH, STEPS, WIDTH, KILLS = 24, 120, 4, 30
way, folder = sys.argv[1:]
faulthandler.dump_traceback_later(90, exit=True)

weights = array.array("f", [0] * WIDTH)
gradient = array.array("f", [0] * WIDTH)
seen = array.array("f", [0])  # Steps, counted before they are committed.
journal = []  # A number for each committed step.
used = {}  # Descriptors, threads and groups after each round.
now = None
ddp = None


def say(text):
    os.write(1, (text + "\n").encode())


def on_round(current):
    global now, ddp
    now = current
    ddp = regroup.DistributedDataParallel(current.group, [(weights, gradient)], sum_gradients=True)
    pair = current.group.new_group(list(range(current.world_size)), name="everyone")
    pair.all_reduce(array.array("i", [1]), async_op=True)  # Dropped; closed with the round.
    say(f"round {current.context.round} of rank {current.rank} of {current.world_size} "
        f"from step {current.step}")


def misbehave(step):
    current = now.context.round
    kills, distance = {"kill": (2, 40), "many": (KILLS, 3)}.get(way, (0, 0))
    if step.rank == 1 and current <= kills and step.number == distance * current:
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "raise" and step.rank == 0 and step.number == 20:
        raise LookupError("no such shard")
    if way == "fatal" and step.rank == 0 and step.number == 20:
        print("the last words")  # Not flushed by the program.
        regroup.report_fatal("user_error", "there is no such data set")


def on_step(step):
    if step.number == STEPS and way != "leave":
        return step.finish()
    misbehave(step)
    with step.section("samples"):
        samples = step.shard(step.take(BATCH))
    gradient[:] = array.array("f", [0] * WIDTH)
    for sample in samples:
        gradient[sample % WIDTH] += sample % 7
    seen[0] += 1
    ddp.reduce_gradients()

    def apply():
        for index in range(WIDTH):
            weights[index] = 0.75 * weights[index] + gradient[index]
        journal.append(step.number)

    step.commit(apply)
    if way == "many" and step.rank == 0:
        gc.collect()
        groups = sum(isinstance(thing, regroup.ProcessGroup) for thing in gc.get_objects())
        # The most of a round: in its last step the group may have ended, with its threads.
        used[now.context.round] = max(used.get(now.context.round, (0, 0, 0)),
                                      (len(os.listdir("/proc/self/fd")),
                                       len(os.listdir("/proc/self/task")), groups))
    return None


def save_journal():
    if way == "save" and now is not None and now.rank == 0:
        raise LookupError("no such shard")
    return struct.pack(f"{len(journal)}q", *journal)


def load_journal(data):
    journal[:] = struct.unpack(f"{len(data) // 8}q", data)


def save(step):
    checkpoint = regroup.Checkpoint()
    checkpoint.set_integer("step", step)
    checkpoint.set_tensor("weights", weights)
    checkpoint.save(os.path.join(folder, "elastic.ckpt"), round=now.context.round)


def on_leave(leave):
    if now.rank == 0:
        save(leave.step)
    say(f"left at step {leave.step}, with time: {leave.time_left > 0}, {leave.reason}")


loop = regroup.ElasticLoop(compare_every=10)
loop.register_state("weights", weights)
loop.register_buffer("seen", seen)
loop.register_state("journal", save=save_journal, load=load_journal)
ending = loop.run(on_step, on_round=on_round, on_leave=on_leave)
if ending == "finished":
    assert journal == list(range(STEPS)), journal
    say(f"result {weights.tobytes().hex()} after {len(journal)}, seen {seen[0]}")
if way == "many" and now.rank == 0:
    say(f"used {used[3]} {used[KILLS + 1]}, rounds {len(used)}")
