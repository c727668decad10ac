# SPDX-License-Identifier: Apache-2.0
"""python -m regroup, and the name torchrun."""
import os
import subprocess
import sys
import unittest

from support import DEADLINE_S, PROGRAM, FolderTest, main, without_job


def run(arguments, **more):
    done = subprocess.run(arguments, env=without_job(**more), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=DEADLINE_S)
    return done.returncode, done.stdout


class Launcher(unittest.TestCase):
    def test_module_is_the_launcher(self):
        expected = run([PROGRAM, "version"])
        self.assertEqual(expected[0], 0)
        folder = os.path.dirname(PROGRAM)
        self.assertEqual(run([sys.executable, "-m", "regroup", "version"],
                             PATH=folder + ":" + os.environ["PATH"]), expected)


class InstallTorchrun(FolderTest):
    """In a virtual environment that has a launcher."""

    def setUp(self):
        super().setUp()
        code, output = run([sys.executable, "-m", "venv", "--without-pip", self.folder])
        self.assertEqual(code, 0, output)
        self.bin = os.path.join(self.folder, "bin")
        self.torchrun = os.path.join(self.bin, "torchrun")
        os.symlink(PROGRAM, os.path.join(self.bin, "regroup"))

    def install(self, *arguments):
        return run([os.path.join(self.bin, "python"), "-m", "regroup", "install-torchrun",
                    *arguments])

    def test_link_is_made_and_removed(self):
        for _ in range(2):
            code, output = self.install()
            self.assertEqual(code, 0, output)
        code, output = run([self.torchrun, "--help"])
        self.assertEqual(code, 0)
        self.assertIn("--nproc-per-node", output)
        for _ in range(2):
            code, output = self.install("--remove")
            self.assertEqual(code, 0, output)
        self.assertEqual([name for name in os.listdir(self.bin) if "torchrun" in name], [])

    def test_torchrun_of_pytorch_comes_back(self):
        with open(self.torchrun, "w", encoding="utf-8") as file:
            file.write("PyTorch's")
        self.assertEqual(self.install()[0], 0)
        self.assertEqual(os.readlink(self.torchrun), "regroup")
        self.assertEqual(self.install("--remove")[0], 0)
        with open(self.torchrun, encoding="utf-8") as file:
            self.assertEqual(file.read(), "PyTorch's")
        self.assertEqual(self.install("--remove")[0], 0)
        self.assertTrue(os.path.isfile(self.torchrun), "what is not ours stays")

    def test_other_places_and_arguments_are_refused(self):
        self.assertEqual(self.install("--undo")[0], 2)
        os.remove(os.path.join(self.bin, "regroup"))
        code, output = self.install()
        self.assertEqual(code, 1)
        self.assertIn("install regroup's wheel", output)
        base = os.path.join(os.path.realpath(sys.base_prefix), "bin",
                            f"python{sys.version_info[0]}.{sys.version_info[1]}")
        code, output = run([base, "-m", "regroup", "install-torchrun"])
        self.assertEqual(code, 1)
        self.assertIn("virtual environments alone", output)


main()
