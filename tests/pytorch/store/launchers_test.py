# SPDX-License-Identifier: Apache-2.0
"""Stock torchrun launchers that meet in a daemon: form a world, grow it, and replace a lost node.

    launchers_test.py --interpreter PYTHON --regroup REGROUP
    launchers_test.py --interpreter PYTHON --regroup REGROUP --handler PACKAGE
    launchers_test.py --interpreter PYTHON --on-pytorchs-store   (for comparison)
"""
import argparse
import os
import sys
import tempfile

from processes import Daemon, Program, free_port, require_release, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))


def install_entry_points(project_file, folder):
    """Installs the entry points of a project, as far as Python reads them."""
    import tomllib  # Since Python 3.11.

    with open(project_file, "rb") as file:
        project = tomllib.load(file)["project"]
    metadata = os.path.join(folder, project["name"] + "-0.dist-info")
    os.mkdir(metadata)
    with open(os.path.join(metadata, "METADATA"), "w") as file:
        file.write(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    with open(os.path.join(metadata, "entry_points.txt"), "w") as file:
        for group, points in project["entry-points"].items():
            lines = [f"{name} = {place}\n" for name, place in points.items()]
            file.write(f"[{group}]\n" + "".join(lines))


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
        if arguments.handler:
            self.env["PYTHONPATH"] = self.folder.name + ":" + arguments.handler
            install_entry_points(os.path.join(arguments.handler, "..", "pyproject.toml"),
                                 self.folder.name)

    def launch(self, nnodes):
        # Without a daemon, the first launcher serves PyTorch's store, as it does by default.
        is_default = self.arguments.on_pytorchs_store or self.arguments.handler
        is_host = "" if is_default else "is_host=false,"
        command = [self.arguments.interpreter, "-m", "torch.distributed.run",
                   "--nnodes", nnodes, "--nproc_per_node", "1", "--max_restarts", "3",
                   "--monitor_interval", "0.5", "--rdzv_id", self.name,
                   "--rdzv_backend", "regroup" if self.arguments.handler else "c10d",
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
HANDLER_SCENARIOS = [the_first_node_is_replaced]


def run(arguments, scenario):
    daemon = None
    if not arguments.on_pytorchs_store:
        daemon = Daemon(arguments.regroup, "--serve-torchrun")
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


REFUSALS = """
import sys
from torch.distributed.elastic.rendezvous import RendezvousParameters
from regroup.rendezvous_handler import create_handler
for endpoint, conf in [("", {}), ("localhost:1", {"is_host": "true"}),
                       ("localhost:1", {"store_type": "file"})]:
    try:
        create_handler(RendezvousParameters("regroup", endpoint, "job", 1, 1, **conf))
    except ValueError:
        continue
    sys.exit(f"not refused: {endpoint!r} {conf}")
"""


def handler_refuses_other_stores(arguments):
    """Settings under which the launchers would not meet at a daemon."""
    command = [arguments.interpreter, "-c", REFUSALS]
    program = Program("refusals", command, dict(os.environ, PYTHONPATH=arguments.handler))
    if program.wait() != 0:
        print(f"FAILED  handler_refuses_other_stores: {program.text()}", flush=True)
    return program.process.returncode == 0


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
    parser.add_argument("--handler", metavar="PACKAGE",
                        help="let them meet by --rdzv_backend=regroup of the package in this folder")
    parser.add_argument("--on-pytorchs-store", action="store_true")
    parser.add_argument("--only", help="the name of one scenario")
    arguments = parser.parse_args()
    arguments.release = require_release(arguments.interpreter)
    if arguments.release < (2, 0) and not works_by_itself(arguments):
        # It publishes the host name, and waits endlessly if that does not resolve.
        print("skipped: PyTorch 1.13's own launcher gets no worker running on this machine")
        sys.exit(77)
    if arguments.handler and arguments.release < (2, 6):
        print("skipped: this release of PyTorch loads no back ends of other packages")
        sys.exit(77)
    of_this_run = HANDLER_SCENARIOS if arguments.handler else SCENARIOS
    chosen = [s for s in of_this_run if arguments.only in (None, s.__name__)]
    results = [run(arguments, scenario) for scenario in chosen]
    if arguments.handler:
        results.append(handler_refuses_other_stores(arguments))
    sys.exit(0 if all(results) else 1)


main()
