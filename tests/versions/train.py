# SPDX-License-Identifier: Apache-2.0
"""A small elastic training that needs no other library: train.py STEPS. It prints what
examples/elastic prints. Its sums are of whole numbers, so they do not depend on the ranks."""
import hashlib
import os
import sys
import time
from array import array

import regroup

steps = int(sys.argv[1])
weights = array("d", [0.0] * 16)
loop = regroup.ElasticLoop()
loop.register_state("weights", weights)


def say(text):
    os.write(1, (text + "\n").encode())


def on_round(current):
    say(f"rank {current.rank} of {current.world_size}, pid {os.getpid()}, from step {current.step}")


rank = 0
for step in loop.steps(until=steps, on_round=on_round):
    with step:
        rank = step.rank
        time.sleep(0.005)
        gradient = array("d", [(step.number * i) % 1009 if i % step.world_size == rank else 0
                               for i in range(len(weights))])
        step.group.all_reduce(gradient)
        with step.update():
            for i, each in enumerate(gradient):
                weights[i] += each
        if rank == 0 and step.number % 100 == 0:
            say(f"step {step.number}: trained")
if rank == 0 and loop.ending == "finished":
    say(f"finished: {steps} steps, parameters {hashlib.sha256(weights.tobytes()).hexdigest()}")
