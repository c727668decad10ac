# SPDX-License-Identifier: Apache-2.0
"""Libraries that train with PyTorch, unmodified, under `regroup run`: a process of the job is lost,
and the job ends as an undisturbed one does. So do the programs of examples/digits.

    clients_test.py --interpreter PYTHON --regroup REGROUP --library LIBREGROUP CLIENT
"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "../../.."))
sys.path.insert(0, os.path.join(HERE, "../store"))

from processes import SKIPPED, Daemon, Program, release_of, wait_until  # noqa: E402

PATIENCE = 300.0  # Seconds. The first run with DeepSpeed compiles a part of it.


class Scripts:
    """Runs scripts of this folder as jobs, each in a folder of its own."""

    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.folder = folder

    def environment(self, paths=(), **more):
        return dict(os.environ, PYTHON_EXEC=self.arguments.interpreter, PYTHONDONTWRITEBYTECODE="1",
                    OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", HF_HUB_OFFLINE="1",
                    TORCH_EXTENSIONS_DIR=os.path.join(  # Compiled once.
                        os.path.dirname(self.arguments.interpreter), "../extensions"),
                    PYTHONPATH=os.pathsep.join([os.path.join(ROOT, "python"), *paths]),
                    REGROUP_LIBRARY=self.arguments.library,
                    CLIENTS_TEST=self.folder, **more)

    def start(self, name, flags, script, *words, **more):
        cwd = os.path.join(self.folder, name)
        os.makedirs(cwd, exist_ok=True)
        command = [self.arguments.regroup, "run", *flags, os.path.join(HERE, script), *words]
        return Program(name, command, self.environment(**more), cwd)

    def finish(self, program):
        """Its output. It must have ended well."""
        code = program.wait(PATIENCE)
        assert code == 0, f"{program.name} ended with {code}:\n{program.text()}"
        return program.text()

    def run(self, name, flags, script, *words, **more):
        return self.finish(self.start(name, flags, script, *words, **more))

    def expect_none_left(self):
        """No process of any job is alive."""
        mark = f"CLIENTS_TEST={self.folder}\0".encode()
        left = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    if mark in file.read():
                        left.append(pid)
            except OSError:
                pass
        assert not left, f"processes {left} were left behind"


def said(output, pattern):
    """The workers' lines that begin so, in any order."""
    return sorted(re.findall(rf"^\[[^\]]*:\d+\] ({pattern}.*)$", output, re.M))


def expect_same_end(scripts, script, words=(), ranks=2, fail_at="1:10", preload=None, **more):
    """One worker is lost. The client goes on from its own checkpoint, and the parameters at the end
    have the bits of an undisturbed run. The same with workers that are forked with `preload`."""
    flags = ["--standalone", f"--nproc-per-node={ranks}", "--max-restarts=1"]
    undisturbed = scripts.run("undisturbed", flags, script, *words)
    assert not said(undisturbed, "resumed"), undisturbed
    expected = said(undisturbed, "final step")
    assert expected, undisturbed
    jobs = {"disturbed": flags}
    if preload:
        jobs["forked"] = [*flags, f"--preload=torch,torch._dynamo,{preload}"]
    for name, job_flags in jobs.items():
        output = scripts.run(name, job_flags, script, *words, **(more or {"FAIL_AT": fail_at}))
        assert more or said(output, f"rank {fail_at[0]} fails"), output
        assert "regroup: round 2: " in output and said(output, "resumed"), output
        assert said(output, "final step") == expected, f"not {expected}:\n{output}"
    return undisturbed


def accelerate(scripts):
    expect_same_end(scripts, "train_accelerate.py", fail_at="1:26", preload="accelerate")


def lightning(scripts):
    output = expect_same_end(scripts, "train_lightning.py", fail_at="1:26", preload="lightning")
    assert len(said(output, "environment TorchElasticEnvironment")) == 2, output


def transformers(scripts):
    expect_same_end(scripts, "train_transformers.py", preload="transformers")


def deepspeed(scripts):
    expect_same_end(scripts, "train_deepspeed.py", preload="deepspeed")


def hybrid_shards(scripts):
    expect_same_end(scripts, "train_sharded.py", ["--replicas=2"], ranks=4)


def forked_loaders(scripts):
    """A process of a DataLoader is lost, which ends its rank with an exception."""
    expect_same_end(scripts, "train_loader.py", ["fork"], FAIL_LOADER="80")


def spawned_loaders(scripts):
    """A rank is lost that has processes of its own."""
    expect_same_end(scripts, "train_loader.py", ["spawn"])


def fewer_shards(scripts):
    """One of two nodes is lost for good. The other one loads what four ranks have saved."""
    daemon = Daemon(scripts.arguments.regroup)
    nodes = []
    try:
        for address in ("127.0.0.2", "127.0.0.3"):
            flags = ["--nnodes=1:2", "--nproc-per-node=2", "--rdzv-id=shards",
                     "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{daemon.port}",
                     f"--local-addr={address}"]
            nodes.append(scripts.start("nodes", flags, "train_sharded.py", "--wait-at=10"))
        wait_until(lambda: all(said(node.text(), "waiting after step 10") for node in nodes) or
                   any(node.process.poll() is not None for node in nodes),
                   "the nodes wait", nodes)
        first = 0 if said(nodes[0].text(), "saved step 8 on 4 ranks") else 1
        saved = said(nodes[first].text(), "saved step 8 on 4 ranks")
        assert len(saved) == 1, nodes[0].text() + nodes[1].text()
        nodes[1 - first].kill()
        survivor = nodes[first]
        wait_until(lambda: said(survivor.text(), "resumed at step 8 on 2 ranks"),
                   "the survivor goes on", [survivor])
        open(os.path.join(scripts.folder, "nodes", "gate"), "w").close()
        output = scripts.finish(survivor)
        resumed = said(output, "resumed at step 8 on 2 ranks")
        assert resumed[0].split()[-1] == saved[0].split()[-1], output
        assert said(output, "final step 16"), output
    finally:
        for node in nodes:
            if node.process.poll() is None:
                node.kill()
        daemon.stop()


def expect_kill_changes_nothing(scripts, example, begun, arguments=()):
    """Rank 1 of the example is killed when rank 0 has said `begun`. It ends with the same bits."""
    flags = ["--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    script = os.path.join(ROOT, "examples/digits", example)
    expected = said(scripts.run("undisturbed", flags, script), "finished: ")
    assert expected, "no rank has finished"
    job = scripts.start("disturbed", flags, script, *arguments)
    try:
        wait_until(lambda: said(job.text(), begun) or job.process.poll() is not None,
                   "the training goes on", [job])
        pid, = re.findall(r"rank 1 of 2, pid (\d+), from \w+ 0", job.text())
        os.kill(int(pid), signal.SIGKILL)
        output = scripts.finish(job)
    finally:
        if job.process.poll() is None:
            job.kill()
    assert "regroup: round 2: " in output, output
    assert said(output, "finished: ") == expected, f"not {expected}:\n{output}"
    return output


def digits(scripts):
    output = expect_kill_changes_nothing(scripts, "train.py", "epoch 3: ", ["--pause=0.3"])
    assert len(said(output, "rank . of 2, pid .* from epoch [^0]")) == 2, output


def digits_elastic(scripts):
    """Rank 0 keeps its process."""
    output = expect_kill_changes_nothing(scripts, "train_elastic.py", "step 100: ",
                                         ["--pause=0.02"])
    (before,), (after,) = (set(re.findall(rf"rank 0 of 2, pid (\d+), from step {step}", output))
                           for step in ("0\n", "[1-9]"))
    assert before == after, output


def programs_of_page():
    """The programs of docs/pytorch.md by the modules that they need: "" is only ours and PyTorch."""
    with open(os.path.join(ROOT, "docs/pytorch.md"), encoding="utf-8") as file:
        texts = re.findall(r"^```python\n(import .*?)^```", file.read(), re.M | re.S)
    programs = {"": [], "model": [], "torchft": [], "nvidia_resiliency_ext": []}
    for text in texts:
        if "import torch" in text:  # Not single lines.
            needs = re.search(r"(?:from|import) (model|torchft|nvidia_resiliency_ext)", text)
            programs[needs[1] if needs else ""].append(text)
    assert [len(texts) for texts in programs.values()] == [2, 2, 1, 1], \
        f"the page has other programs: {programs}"
    return programs


def run_program(scripts, name, text, **more):
    path = os.path.join(scripts.folder, f"{name}.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return scripts.run(name, ["--standalone", "--nproc-per-node=2"], path, **more)


def page(scripts):
    for number, text in enumerate(programs_of_page()[""]):
        output = run_program(scripts, f"page{number}", text)
        assert len(said(output, "finished: loss 0")) == 2, output


def page_on_gpus(scripts):
    """The programs for GPUs, on the CPU by the two changes that the page names."""
    for number, text in enumerate(programs_of_page()["model"]):
        text, changed = re.subn(r'device = "cuda"\n.*set_device.*\n', 'device = "cpu"\n', text)
        assert changed == 1, text
        text += '\nprint(f"finished: loss {loss.item():.4f}", flush=True)\n'
        output = run_program(scripts, f"gpus{number}", text,
                             paths=[os.path.join(ROOT, "examples/digits")])
        assert len(said(output, "finished: loss 0")) == 2, output


# The packages of each, beside torch, and the release of torch that it needs.
CLIENTS = {
    accelerate: (["accelerate"], (2, 0)),
    lightning: (["lightning"], (2, 1)),
    transformers: (["transformers", "accelerate"], (2, 4)),
    deepspeed: (["deepspeed"], (2, 0)),
    hybrid_shards: ([], (2, 6)),
    fewer_shards: ([], (2, 6)),
    forked_loaders: ([], (1, 13)),
    spawned_loaders: ([], (1, 13)),
    page: ([], (2, 0)),
    page_on_gpus: (["sklearn"], (2, 14)),
    digits: (["sklearn"], (1, 13)),
    digits_elastic: (["sklearn"], (1, 13)),
}


def what_lacks(interpreter, packages, release):
    present = release_of(interpreter)
    if present is None or present < release:
        return f"{interpreter} has no PyTorch {release[0]}.{release[1]} or newer"
    code = "import sys; from importlib.util import find_spec\n" \
           "sys.exit(' '.join(name for name in sys.argv[1:] if not find_spec(name)) or 0)"
    missing = subprocess.run([interpreter, "-c", code, *packages], capture_output=True, text=True)
    if missing.returncode:
        return f"{interpreter} has no {missing.stderr.strip()}; get it by: make test-pytorch"
    if "deepspeed" in packages and not shutil.which("c++"):
        return "DeepSpeed compiles a part of itself, and there is no c++"
    return None


def main():
    clients = {client.__name__: client for client in CLIENTS}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interpreter", required=True)
    parser.add_argument("--regroup", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("client", choices=clients)
    arguments = parser.parse_args()
    client = clients[arguments.client]
    lacking = what_lacks(arguments.interpreter, *CLIENTS[client])
    if lacking:
        print(f"skipped: {lacking}")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        scripts = Scripts(arguments, folder)
        client(scripts)
        scripts.expect_none_left()
    print(f"ok      {arguments.client}")


if __name__ == "__main__":
    main()
