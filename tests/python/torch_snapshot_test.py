# SPDX-License-Identifier: Apache-2.0
"""regroup.torch.Snapshot, and snapshots as storage of torch.distributed.checkpoint, in jobs of
torch_snapshot_job.py."""
import glob
import os
import re
import socket
import subprocess
import sys
import time
import unittest

from support import (HERE, PROGRAM, FolderTest, main, needs_torch, package, run_job, torch,
                     without_job)

RELEASE = tuple(map(int, torch.__version__.split(".")[:2])) if torch else (0, 0)
#: The imports that a new process is spared.
PRELOADED = "torch,regroup.torch" if RELEASE < (2, 6) else \
            "torch,torch._dynamo,regroup.torch,torch.distributed.fsdp,torch.distributed.checkpoint"
needs_shards = unittest.skipUnless(RELEASE >= (2, 6), "needs PyTorch from 2.6 on, for fully_shard")


@needs_torch
class TorchSnapshot(FolderTest):
    def train(self, way, steps, *kills, ranks=2, flags=()):
        flags = [f"--preload={PRELOADED}", f"--max-restarts={len(kills) + 1}", *flags]
        code, output = run_job(self.folder, "torch_snapshot_job.py", way, self.folder, steps,
                               *kills, ranks=ranks, deadline_s=200, flags=flags)
        self.assertEqual(code, 0, output)
        return output

    def results(self, output, ranks=2):
        results = dict(re.findall(r"rank (\d+): result (.*)", output))
        self.assertEqual(len(results), ranks, output)
        return results

    def loaded(self, output):
        return re.findall(r"^\[\S+ rank 0: loaded (\w+)", output, re.MULTILINE)

    def expect_same_result(self, way, *last):
        """All processes end twice, and begin again from the newest snapshot: 15, or one of
        ``last``."""
        folder = f"--snapshot-dir={self.folder}/kept"
        first = self.train(way, "3", flags=[folder])  # Decides about the first parameters.
        self.assertEqual(self.loaded(first), ["None"])
        for path in glob.glob(f"{self.folder}/died*"):
            os.remove(path)
        kept = os.path.join(self.folder, "kept")
        copy = os.path.join(self.folder, "copy")
        os.system(f"cp -a {kept} {copy}")
        undisturbed = self.train(way, "20", flags=[folder])
        output = self.train(way, "20", "7:1", "16:0", flags=[f"--snapshot-dir={copy}"])
        self.assertEqual(self.loaded(undisturbed), ["3"], undisturbed)
        self.assertEqual(self.loaded(output)[:2], ["3", "6"], output)
        self.assertIn(self.loaded(output)[2], ["15", *last], output)
        self.assertEqual(self.results(output), self.results(undisturbed), output)

    def test_ddp_goes_on_from_the_newest_step(self):
        self.expect_same_result("ddp")

    def test_each_rank_gets_its_own_model_back(self):
        self.expect_same_result("own")

    @needs_shards
    def test_shards_go_on_from_the_newest_step(self):
        self.expect_same_result("sharded")

    @needs_shards
    def test_distributed_checkpoint_goes_on_from_the_newest_step(self):
        self.expect_same_result("dcp", "12")  # Step 15 may still be on its way.

    def expect_other_world(self, way, *worlds):
        folder = f"--snapshot-dir={self.folder}/kept"

        def parameters_in(output, ranks):
            found = re.findall(r"rank \d+: result parameters (\w+)", output)
            self.assertEqual(len(found), ranks, output)
            return set(found)

        expected = parameters_in(self.train(way, "9", ranks=4, flags=[folder]), 4)
        self.assertEqual(len(expected), 1)
        for ranks in worlds:
            output = self.train(way, "9", ranks=ranks, flags=[folder])
            self.assertEqual(self.loaded(output), ["9"], output)
            self.assertEqual(parameters_in(output, ranks), expected, output)

    @needs_shards
    def test_shards_are_loaded_by_other_numbers_of_ranks(self):
        self.expect_other_world("sharded", 3, 5)

    @needs_shards
    def test_distributed_checkpoint_is_loaded_by_other_numbers_of_ranks(self):
        self.expect_other_world("dcp", 2)

    @needs_shards
    @unittest.skipUnless(package("safetensors"), "needs safetensors")
    def test_pytorchs_own_reader_reads_the_files(self):
        from torch.distributed.checkpoint import HuggingFaceStorageReader, load
        folder = f"{self.folder}/kept"
        self.train("sharded", "3", ranks=3, flags=[f"--snapshot-dir={folder}"])
        newest = sorted(glob.glob(f"{folder}/state/*"))[-1]
        self.assertTrue(os.path.exists(f"{newest}/snapshot.json"))
        state = {"model.0.weight": torch.zeros(33, 8)}
        load(state, storage_reader=HuggingFaceStorageReader(newest))
        from safetensors import safe_open
        pieces = []
        for path in sorted(glob.glob(f"{newest}/*.safetensors")):
            with safe_open(path, framework="pt") as file:
                pieces.append(file.get_tensor("model.0.weight"))
        self.assertTrue(torch.equal(torch.cat(pieces), state["model.0.weight"]))
        self.assertGreater(state["model.0.weight"].abs().sum().item(), 0)

    @needs_shards
    @unittest.skipUnless(package("safetensors"), "needs safetensors")
    def test_models_begin_with_the_files_of_pytorchs_own_writer(self):
        with open(f"{self.folder}/write", "w", encoding="utf-8"):
            written = self.results(self.train("sharded", "3", ranks=3), 3)["0"]
        os.remove(f"{self.folder}/write")
        self.assertEqual(len(glob.glob(f"{self.folder}/written/*.safetensors")), 3)
        os.rename(f"{self.folder}/written", f"{self.folder}/theirs")
        output = self.train("sharded", "0")  # No step: the parameters stay.
        self.assertEqual(self.loaded(output), ["None"], output)
        read = self.results(output)["0"]
        self.assertEqual(read.split()[1], written.split()[1], output)  # The parameters.

    def test_files_that_do_not_fit_are_refused(self):
        from regroup.errors import InvalidArgument
        from regroup.torch.safetensors_files import SafetensorsFolder
        with self.assertRaisesRegex(InvalidArgument, "no .safetensors file"):
            SafetensorsFolder(self.folder)
        text = b'{"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}'
        for damage in (text[:-1], text.replace(b"F32", b"F3"), text.replace(b"16", b"32"),
                       text.replace(b"[2,2]", b"[2,3]"), b"[]", b"{"):
            with open(f"{self.folder}/model.safetensors", "wb") as file:
                file.write(len(damage).to_bytes(8, "little") + damage + bytes(16))
            with self.assertRaisesRegex(InvalidArgument, "is no safetensors file", msg=damage):
                SafetensorsFolder(self.folder)
        with open(f"{self.folder}/model.safetensors", "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text
                       + torch.arange(4.0).numpy().tobytes())
        files = SafetensorsFolder(self.folder)
        target = torch.zeros(2, 1, dtype=torch.float64)
        files.read("w", target, (0, 1))
        self.assertEqual(target.tolist(), [[1], [3]])
        self.assertFalse(files.has_all_of("w", target, (1, 1)))


@needs_torch
@needs_shards
class Example(FolderTest):
    def start(self, number):
        """A node of examples/shards on an address of its own."""
        environment = without_job(OMP_NUM_THREADS="1")
        output = open(f"{self.folder}/node{number}", "w+", encoding="utf-8")
        self.addCleanup(output.close)
        process = subprocess.Popen(
            [PROGRAM, "run", "--nnodes=1:2", "--nproc-per-node=2", "--max-restarts=3",
             "--rdzv-backend=c10d", f"--rdzv-endpoint={self.endpoint}", "--rdzv-id=shards",
             f"--local-addr=127.0.0.{number}", f"--log-dir={self.folder}/runs", sys.executable,
             os.path.join(HERE, "../../examples/shards/train.py"), "--pause=0.02"],
            cwd=self.folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def said(self, number):
        with open(f"{self.folder}/node{number}", encoding="utf-8") as file:
            return file.read()

    def test_ranks_that_are_left_have_the_shards_of_a_lost_node(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
        first = self.start(1)
        second = self.start(2)
        deadline = time.monotonic() + 100
        while "step 150: " not in self.said(1) + self.said(2):
            self.assertLess(time.monotonic(), deadline, self.said(1))
            self.assertIsNone(first.poll(), self.said(1))
            time.sleep(0.05)
        second.kill()
        self.assertEqual(first.wait(100), 0, self.said(1))
        output = self.said(1)
        begun = re.findall(r"^\[\S+ rank (\d) of 2, pid \d+, from step (\d+)", output, re.MULTILINE)
        self.assertEqual(sorted(rank for rank, _ in begun), ["0", "1"], output)
        for _, step in begun:
            self.assertGreaterEqual(int(step), 140, output)
        self.assertIn("step 400: ", output)


if __name__ == "__main__":
    main()
