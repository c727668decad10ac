# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends a process that waits inside the library, and raises KeyboardInterrupt elsewhere."""
import signal
import subprocess
import sys
import unittest

from support import DEADLINE_S, main, without_job

# The main thread shows through the action of SIGINT that it is inside the library.
WAITS_INSIDE = """
import os, signal, threading, time
import regroup

def announce():
    while signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        time.sleep(0.001)
    os.write(1, b"inside\\n")

threading.Thread(target=announce, daemon=True).start()
regroup.Store.local(timeout=1000).get("never")
"""


class Interrupts(unittest.TestCase):
    def interrupt(self, program):
        """The exit code and the output of a program that gets SIGINT when it says "inside"."""
        process = subprocess.Popen([sys.executable, "-c", program], env=without_job(),
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(process.stdout.readline(), "inside\n")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE_S)
        return process.returncode, output

    def test_process_that_waits_is_ended(self):
        self.assertEqual(self.interrupt(WAITS_INSIDE), (-signal.SIGINT, ""))

    def test_process_that_waits_in_a_step_is_ended(self):
        code, output = self.interrupt("""
import os, signal, threading, time
import regroup

def on_step(step):
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    threading.Thread(target=announce, daemon=True).start()
    regroup.Store.local(timeout=1000).get("never")

def announce():
    while signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        time.sleep(0.001)
    os.write(1, b"inside\\n")

regroup.ElasticLoop().run(on_step)
""")
        self.assertEqual((code, output), (-signal.SIGINT, ""))

    def test_callback_gets_the_exception(self):
        code, output = self.interrupt("""
import os, time
import regroup

def on_step(step):
    os.write(1, b"inside\\n")
    time.sleep(1000)

try:
    regroup.ElasticLoop().run(on_step)
except KeyboardInterrupt:
    print("cleaned up")
""")
        self.assertEqual((code, output), (0, "cleaned up\n"))

    def test_handler_of_the_program_stays(self):
        code, output = self.interrupt("""
import os, signal, time
import regroup

came = []

def on_step(step):
    os.write(1, b"inside\\n")
    assert signal.getsignal(signal.SIGINT) is mine
    while not came:
        time.sleep(0.001)
    step.finish()

def mine(*_):
    came.append(True)
    print("mine")

signal.signal(signal.SIGINT, mine)
regroup.ElasticLoop().run(on_step)
""")
        self.assertEqual((code, output), (0, "mine\n"))


main()
