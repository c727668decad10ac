# SPDX-License-Identifier: Apache-2.0
"""Stock torchrun launchers that meet in a daemon: form a world, grow it, and replace a lost node.

    launchers_test.py --interpreter PYTHON --regroup REGROUP
    launchers_test.py --interpreter PYTHON --on-pytorchs-store   (for comparison)
"""
import argparse
import os
import sys
import tempfile

from processes import Daemon, Program, free_port, require_release, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))


class Job:
    """Launchers of one job, each standing for a node."""

    def __init__(self, arguments, name, port, env=None):
        self.arguments = arguments
        self.name = name
        self.port = port
        self.launchers = []
        self.folder = tempfile.TemporaryDirectory()
        self.stop_file = os.path.join(self.folder.name, "stop")
        self.env = dict(os.environ, **(env or {}))

    def launch(self, nnodes):
        # Without a daemon, the first launcher serves PyTorch's store, as it does by default.
        is_host = "" if self.arguments.on_pytorchs_store else "is_host=false,"
        command = [self.arguments.interpreter, "-m", "torch.distributed.run",
                   "--nnodes", nnodes, "--nproc_per_node", "1", "--max_restarts", "3",
                   "--monitor_interval", "0.5", "--rdzv_id", self.name, "--rdzv_backend", "c10d",
                   "--rdzv_endpoint", f"127.0.0.1:{self.port}",
                   "--rdzv_conf", is_host + "last_call_timeout=1,read_timeout=30,"
                   "keep_alive_interval=1,keep_alive_max_attempt=3",
                   os.path.join(HERE, "launchers_worker.py"), self.stop_file]
        if self.arguments.release < (2, 0):
            # On Python 3.11, PyTorch 1.13 can start a worker only if its output is redirected.
            logs = os.path.join(self.folder.name, "logs")
            command[3:3] = ["--redirects", "1", "--tee", "1", "--log_dir", logs]
        launcher = Program(f"{self.name}-{len(self.launchers)}", command, self.env)
        self.launchers.append(launcher)
        return launcher

    def expect(self, launcher, world, count=1):
        """Waits until that launcher's worker has reduced in such a world `count` times over."""
        line = f"WORKER world={world} "
        wait_until(lambda: len(launcher.lines(line)) >= count or
                   launcher.process.poll() is not None,
                   f"{launcher.name} in a world of {world}", self.launchers)
        said = launcher.lines(line)
        assert len(said) >= count, f"{launcher.name} ended:\n{launcher.text()}"
        total = sum(range(1, world + 1))
        assert f" sum={total} " in said[-1], said[-1]
        return said[-1]

    def finish(self):
        open(self.stop_file, "w").close()
        for launcher in self.launchers:
            if launcher.process.returncode is None:
                code = launcher.wait()
                assert code == 0, f"{launcher.name} ended with {code}:\n{launcher.text()}"

    def end(self):
        for launcher in self.launchers:
            if launcher.process.poll() is None:
                launcher.kill()
        self.folder.cleanup()


def two_form_a_world(job):
    for launcher in [job.launch("2"), job.launch("2")]:
        job.expect(launcher, world=2)
    job.finish()


def an_id_is_free_again(job):
    for _ in range(2):
        job.launchers.clear()
        job.expect(job.launch("1:2"), world=1)
        job.finish()
        os.unlink(job.stop_file)


def a_second_node_comes_later(job):
    first = job.launch("1:2")
    job.expect(first, world=1)
    second = job.launch("1:2")
    job.expect(first, world=2)
    job.expect(second, world=2)
    job.finish()


def the_first_node_is_replaced(job):
    nodes = [job.launch("2"), job.launch("2")]
    said = [job.expect(node, world=2) for node in nodes]
    first = 0 if " rank=0 " in said[0] else 1
    nodes[first].kill()
    survivor = nodes[1 - first]
    replacement = job.launch("2")
    job.expect(replacement, world=2)
    job.expect(survivor, world=2, count=2)
    job.finish()


def workers_may_serve_their_store_themselves(job):
    job.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    a_second_node_comes_later(job)


SCENARIOS = [two_form_a_world, an_id_is_free_again, a_second_node_comes_later,
             the_first_node_is_replaced, workers_may_serve_their_store_themselves]


def run(arguments, scenario):
    daemon = None if arguments.on_pytorchs_store else Daemon(arguments.regroup)
    job = Job(arguments, scenario.__name__, daemon.port if daemon else free_port())
    try:
        scenario(job)
        if daemon:
            wait_until(lambda: daemon.lines(f"job {job.name}: its last torchrun is gone"),
                       "the daemon forgets the job", [daemon])
        print(f"ok      {scenario.__name__}", flush=True)
        return True
    except AssertionError as failure:
        print(f"FAILED  {scenario.__name__}: {failure}", flush=True)
        if daemon:
            print(f"---- the daemon\n{daemon.text()}", flush=True)
        return False
    finally:
        job.end()
        if daemon:
            daemon.stop()


def works_by_itself(arguments):
    """Whether the launcher of this release can start a worker on this machine without regroup."""
    own = argparse.Namespace(**vars(arguments))
    own.on_pytorchs_store = True
    job = Job(own, "by_itself", free_port())
    try:
        job.expect(job.launch("1"), world=1)
        job.finish()
        return True
    except AssertionError:
        return False
    finally:
        job.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interpreter", required=True)
    parser.add_argument("--regroup")
    parser.add_argument("--on-pytorchs-store", action="store_true")
    parser.add_argument("--only", help="the name of one scenario")
    arguments = parser.parse_args()
    arguments.release = require_release(arguments.interpreter)
    if arguments.release < (2, 0) and not works_by_itself(arguments):
        # It publishes the host name, and waits endlessly if that does not resolve.
        print("skipped: PyTorch 1.13's own launcher gets no worker running on this machine")
        sys.exit(77)
    chosen = [s for s in SCENARIOS if arguments.only in (None, s.__name__)]
    results = [run(arguments, scenario) for scenario in chosen]
    sys.exit(0 if all(results) else 1)


main()
