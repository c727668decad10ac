# SPDX-License-Identifier: Apache-2.0
"""Shows that trainings of PyTorch over NCCL keep their processes when a rank is lost, and that
successors get the memory of the dead: see docs/gpu.md.

    python3 tests/gpu/torch_check.py [--limit=480] [--share=0.75] [PART...]

gpu.sh starts it with the package of the bundle.


Needs the package regroup, with CUDA, and PyTorch; two ranks may share one GPU. Runs one part after
the other, each with a deadline, and goes on if one fails or hangs. Ends with a table, and with code 1
if a part has failed, or 77 if there is no GPU. PART selects parts by a piece of their names.
--device=cpu --backend=gloo shows only that it works.
"""
import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import List, NamedTuple, Optional

from regroup._launcher import find

HERE = os.path.dirname(os.path.abspath(__file__))
LAUNCHER = os.environ.get("REGROUP_PROGRAM") or find()
PRELOADED = "torch,torch._dynamo,regroup.torch,torch.distributed.fsdp"
NEW = (2, 14)  # The PyTorch that has nccl2, two back ends in a group, and ShardedElastic.
TOLD = re.compile(r"measured: |GPU memory| GB on ")
TAIL = 40  # Lines of output that are shown of a part that has failed.


class Part(NamedTuple):
    name: str
    limit_s: int
    command: List[str]
    reference: Optional[str] = None  #: The part that ends with the same parameters.
    needs_new: bool = False


def job(program, ranks, restarts, *arguments, flags=()):
    return [LAUNCHER, "run", "--standalone", f"--nproc-per-node={ranks}",
            f"--max-restarts={restarts}", *flags, sys.executable, os.path.join(HERE, program),
            *map(str, arguments)]


def training(kind, backend, options, kills, *more):
    limit = 90 + 5 * kills  # The first import of PyTorch may take a minute.
    return limit + 15, job("torch_elastic.py", 2, 3 * kills + 1, kind, f"--backend={backend}",
                           f"--device={options.device}", f"--kills={kills}", f"--limit={limit}",
                           *more, flags=[f"--preload={PRELOADED}"])


def parts_of(options):
    on_gpu = options.device == "cuda"
    mixed = "cpu:regroup,cuda:nccl"
    backends = {"ddp": ["nccl", mixed, "nccl2"], "fsdp": [mixed]} if on_gpu else {
        "ddp": [options.backend], "fsdp": [options.backend]}
    for kind, chosen in backends.items():
        reference = f"{kind} without kills"
        yield Part(reference, *training(kind, chosen[0], options, 0), None, kind == "fsdp")
        for backend in chosen:
            is_new = kind == "fsdp" or backend != chosen[0]
            yield Part(f"{kind} {backend}", *training(kind, backend, options, options.kills),
                       reference, is_new)
            if backend != mixed:  # There it forms as "nccl" does.
                yield Part(f"{kind} {backend} forming",
                           *training(kind, backend, options, 1, "--places=form"), reference, is_new)
    yield Part("memory of the dead", 90, job("torch_memory.py", 1, 2, "successor", options.device,
                                             options.share))
    yield Part("two communicators", 60, job("torch_memory.py", 2, 0, "communicators",
                                            options.device))
    size, device = (20, "cuda:0") if on_gpu else (0.05, "cpu")
    yield Part("snapshots", 90, job("torch_snapshot.py", 1, 1, size, device))
    if on_gpu:
        yield Part("profiler", 180, [sys.executable, os.path.join(HERE, "torch_profiler.py"),
                                     profiler_plugin()])


def profiler_plugin():
    """Beside the launcher in a build tree; where the wheel has it otherwise."""
    folder, name = os.path.dirname(LAUNCHER), "libnccl-profiler-regroup.so"
    beside = os.path.join(folder, name)
    return beside if os.path.exists(beside) else os.path.join(folder, "..", "lib", "regroup", name)


def memory_mib():
    """MiB in use on the first GPU, by all programs, for the table."""
    if shutil.which("nvidia-smi") is None:
        return "-"
    with contextlib.suppress(subprocess.TimeoutExpired):
        told = subprocess.run(
            ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=20, check=False)
        return told.stdout.split("\n")[0].strip() or "-"
    return "-"


def run(part, limit_s, folder):
    """The exit code, None at the deadline, and the output."""
    environment = dict(os.environ, TMPDIR=folder, CUBLAS_WORKSPACE_CONFIG=":4096:8",
                       PYTHONDONTWRITEBYTECODE="1")
    path = os.path.join(folder, "output")
    with open(path, "w", encoding="utf-8") as file:
        process = subprocess.Popen(part.command, stdout=file, stderr=subprocess.STDOUT,
                                   env=environment, cwd=folder, start_new_session=True)
        code = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(limit_s)
        finally:
            if code is None:
                os.killpg(process.pid, signal.SIGKILL)  # The workers of a launcher end with it.
                with contextlib.suppress(subprocess.TimeoutExpired):  # Stuck in the driver.
                    process.wait(10)
    with open(path, encoding="utf-8", errors="replace") as file:
        return code, file.read()


def check(part, limit_s, digests):
    """Runs a part, and returns what the table says of it."""
    with tempfile.TemporaryDirectory(prefix="torch-check-", ignore_cleanup_errors=True) as folder:
        code, output = run(part, limit_s, folder)
    lines = output.splitlines()
    digest = re.search(r"parameters (\w{16})", output)
    digests[part.name] = digest and digest[1]
    expected = digests.get(part.reference)
    if code is None:
        result = f"FAILED: not over after {limit_s:.0f} s"
    elif code != 0:
        result = f"FAILED: exit code {code}"
    elif expected and digests[part.name] != expected:
        result = f"FAILED: not the parameters of \"{part.reference}\""
    else:
        result = "passed" if expected or not part.reference else "passed, but not compared"
        if part.command[0] != sys.executable:  # Under the launcher.
            lines = [line for line in lines if TOLD.search(line)]
    print("\n".join(f"    {line}" for line in lines[-TAIL:]), flush=True)
    return result


def gpu_or_end(options):
    """Prints which PyTorch there is, and returns its release."""
    ask = ("import torch, torch.cuda as c; count = c.device_count(); print(torch.__version__, count, "
           "count and f'{c.get_device_name()}, NCCL {c.nccl.version()}', sep='; ')")
    told = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False)
    if told.returncode != 0:
        sys.exit(f"torch_check: FAILED: {sys.executable} cannot import torch: "
                 f"{told.stderr.strip().splitlines()[-1:]}")
    release, count, rest = told.stdout.strip().split("; ")
    print(f"torch_check: {sys.executable}, PyTorch {release}, {count} GPU(s): {rest}", flush=True)
    if options.device == "cuda" and count == "0":
        print("torch_check: skipped: PyTorch sees no GPU")
        sys.exit(77)
    if count == "1":
        os.environ["REGROUP_SHARE_GPUS"] = "1"
    return tuple(map(int, re.findall(r"\d+", release)[:2]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--backend", default="gloo", help="on the CPU")
    parser.add_argument("--limit", type=int, default=480, help="seconds for all parts")
    parser.add_argument("--share", type=float, default=0.75, help="of the memory of the GPU")
    parser.add_argument("--kills", type=int, default=8, help="in each training")
    parser.add_argument("parts", nargs="*", help="pieces of the names of parts")
    options = parser.parse_args()
    release = gpu_or_end(options)
    end = time.monotonic() + options.limit
    rows, digests = [], {}
    parts = list(parts_of(options))
    chosen = [part for part in parts
              if not options.parts or any(word in part.name for word in options.parts)]
    needed = {part.reference for part in chosen}
    for part in parts:
        if part not in chosen and part.name not in needed:
            continue
        begin, before = time.monotonic(), memory_mib()
        print(f"== {part.name}", flush=True)
        if part.needs_new and release < NEW:
            result = f"skipped: needs PyTorch {NEW[0]}.{NEW[1]}"
        elif end - begin < 5:
            result = "FAILED: no time was left"
        else:
            result = check(part, min(part.limit_s, end - begin), digests)
        rows.append((part.name, f"{time.monotonic() - begin:.1f}", before, memory_mib(), result))
    rows.insert(0, ("part", "seconds", "MiB before", "MiB after", "result"))
    for name, seconds, before, after, result in rows:
        print(f"{name:34} {seconds:>8} {before:>11} {after:>10}  {result}")
    sys.exit(1 if any(row[4].startswith("FAILED") for row in rows) else 0)


if __name__ == "__main__":
    main()
