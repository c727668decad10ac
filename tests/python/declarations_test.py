# SPDX-License-Identifier: Apache-2.0
"""The package declares what the headers of the C interface declare."""
import glob
import os
import re
import unittest

import regroup
from regroup import _library, errors
from regroup._library import library
from support import HERE, main

ROOT = os.path.join(HERE, "..", "..")

# Python has no use for these: the general form of each operation and of saving does the same, and
# gradients are buffers of Python; the loop is driven by events.
UNUSED = {"all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather", "gather", "scatter",
          "all_to_all", "barrier", "send", "recv", "checkpoint_save", "ddp_gradient",
          "ddp_zero_gradients", "elastic_run"}


def headers():
    text = ""
    for path in sorted(glob.glob(os.path.join(ROOT, "worker_sdk/include/regroup/c_api*.h"))):
        with open(path, encoding="utf-8") as file:
            text += file.read()
    return re.sub(r"///.*", "", text)


class Declarations(unittest.TestCase):
    def test_functions_have_the_arguments_of_the_headers(self):
        declared = {}
        functions = re.findall(r"^regroup_errc regroup_(\w+)\(([^;]*)\);", headers(), re.M)
        for name, arguments in functions:
            commas = re.sub(r"\([^()]*\)", "", arguments).count(",")
            declared[name] = 0 if arguments.strip() == "void" else commas + 1
        self.assertGreater(len(declared), 80)
        self.assertEqual({name: len(types) for name, types in _library._FALLIBLE.items()},
                         {name: count for name, count in declared.items() if name not in UNUSED})
        self.assertLessEqual(UNUSED, set(declared))

    def test_functions_that_free_are_those_of_the_headers(self):
        self.assertEqual(
            {name for name in _library._OTHERS if name.endswith("_free")},
            set(re.findall(r"^void regroup_(\w+_free)\(", headers(), re.M)))

    def test_numbers_are_those_of_the_headers(self):
        values = dict(re.findall(r"REGROUP_(\w+) = (\d+)", headers()))
        for name, number in regroup.tensors.DTYPES.items():
            self.assertEqual(values[name.upper()], str(number))
        for number, name in enumerate(regroup.process_group._OPS):
            self.assertEqual(values[name.upper()], str(number))
        for number, name in enumerate(regroup._FATAL_KINDS):
            self.assertEqual(values["FATAL_" + name.upper()], str(number))

    def test_each_code_has_its_class(self):
        bases = {"invalid_argument": ValueError, "deadline_exceeded": TimeoutError,
                 "disconnected": ConnectionError, "overloaded": Exception, "fenced": Exception,
                 "closed": Exception, "system": OSError}
        for code in range(1, 8):
            failure = errors.of_code(code, "a sentence")
            name = library.regroup_errc_name(code).decode()
            self.assertIsInstance(failure, bases.pop(name))
            self.assertIsInstance(failure, regroup.Error)
            self.assertEqual((failure.code, str(failure)), (code, "a sentence"))
            self.assertEqual(type(failure).__name__.lower().replace("failure", ""),
                             name.replace("_", ""))
        self.assertEqual(bases, {})

    def test_version_is_that_of_the_library_and_of_the_project(self):
        with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
            version = re.search(r"project\(regroup VERSION ([0-9.]+)", file.read()).group(1)
        self.assertEqual(regroup.__version__, version)
        self.assertEqual(_library.ABI, version.rpartition(".")[0])


main()
