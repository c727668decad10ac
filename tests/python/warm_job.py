# SPDX-License-Identifier: Apache-2.0
"""Elastic steps for elastic_test.py, until a worker starts from what the agent has prepared:

    warm_job.py KILLS

It imports the package `heavy`, whose PID is the process that has imported it. A rank 1 that has done
so itself is killed, in KILLS rounds at most.
"""
import faulthandler
import os
import signal
import sys
import time

import heavy
import regroup

kills = int(sys.argv[1])
faulthandler.dump_traceback_later(90, exit=True)
was_forked = heavy.PID != os.getpid()
first = None  # The step of this round.


def on_round(current):
    global first
    first = current.step


loop = regroup.ElasticLoop()
for step in loop.steps(on_round=on_round):
    with step:
        time.sleep(0.002)
        current = step.context.round
        if step.number == first + 20:
            if step.rank == 1 and current <= kills and not was_forked:
                os.kill(os.getpid(), signal.SIGKILL)
            step.finish()
            continue
        step.commit()
print(f"rank {step.rank} was forked: {was_forked}", flush=True)
