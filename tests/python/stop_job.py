# SPDX-License-Identifier: Apache-2.0
"""A plain loop that asks in each step whether to stop, for stop_test.py."""
import array
import os
import sys

import regroup

steps = int(sys.argv[1])
context = regroup.Context.from_environment()
state = array.array("d", [0])
snapshot = regroup.Snapshot(context, folder=sys.argv[2], replicated=True)
snapshot.add("state", state)
first = snapshot.load() or 0
print(f"rank {context.rank} begins with step {first}, state {state[0]:.0f}", flush=True)
group = regroup.ProcessGroup.create("cpu", context)
for step in range(first, steps):
    if regroup.stop_requested(step):
        saved = snapshot.save(step)
        print(f"rank {context.rank} stops at step {step}, state {state[0]:.0f}, saved: {saved}",
              flush=True)
        break
    state[0] += 1
    group.all_reduce(array.array("d", [1]))
    if step == first + 2:
        print(f"rank {context.rank} trains, pid {os.getpid()}", flush=True)
else:
    print(f"rank {context.rank} has finished", flush=True)
