# SPDX-License-Identifier: Apache-2.0
"""Where and how a test lets one process of a job fail, and what it compares at the end."""
import hashlib
import os
import signal
import sys


def say(text):
    # One write per line, so that the lines of several ranks never mix.
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def fail_as_planned(step):
    """Kills this process if FAIL_AT is RANK:STEP of it, in the first round of the job."""
    rank = os.environ["RANK"]
    if (os.environ.get("FAIL_AT") == f"{rank}:{step}" and
            os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"):
        say(f"rank {rank} fails at step {step}")
        os.kill(os.getpid(), signal.SIGKILL)


def hash_of(state):
    """The same for equal bits in a state_dict."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
