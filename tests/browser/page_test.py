# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser, with a real daemon and a real job: a worker is killed, a node is
drained, the daemon dies and returns, the job is stopped. Asserts on attributes, not on sentences.

    page_test.py REGROUP ELASTIC [--screenshots FOLDER]
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import browser
import stand_in

HERE = pathlib.Path(__file__).resolve().parent
SCREENSHOTS = None
JOB = "nightly run"
VIEW = "document.querySelector('article')?.dataset"


class Cluster:
    """A daemon with a token and a journal, and agents with two workers each."""

    def __init__(self, regroup, program):
        self.regroup, self.program = regroup, program
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="regroup-page-"))
        token = self.folder / "token"
        self.surroundings = {**os.environ, "HOME": str(self.folder), "REGROUP_TOKEN_FILE": str(token),
                             "XDG_STATE_HOME": str(self.folder)}
        self.run("token", "--generate", f"--token-file={token}")
        self.operator = self.run("token", "--role=operator").strip()
        self.observer = self.run("token", "--role=observer").strip()
        self.processes = []
        self.port = 0
        self.serve()

    def run(self, *arguments):
        return subprocess.run([self.regroup, *arguments], env=self.surroundings, check=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, timeout=30).stdout

    def start(self, *arguments, **options):
        process = subprocess.Popen([self.regroup, *arguments], env=self.surroundings, cwd=self.folder,
                                   stdin=subprocess.DEVNULL, **options)
        self.processes.append(process)
        return process

    def serve(self):
        """Starts the daemon, again on the same port."""
        log = self.folder / "serve.log"
        log.write_text("")
        with log.open("w") as file:
            self.daemon = self.start("serve", f"--listen=127.0.0.1:{self.port}",
                                     f"--state={self.folder / 'journal'}", stderr=file)
        until = time.monotonic() + 20
        while "listening on" not in log.read_text():
            if time.monotonic() > until or self.daemon.poll() is not None:
                raise RuntimeError(f"no daemon: {log.read_text()}")
            time.sleep(0.02)
        line = next(line for line in log.read_text().splitlines() if "listening on" in line)
        self.port = int(line.rsplit(":", 1)[1])

    def agent(self, name):
        return self.start("run", "--nnodes=1:3", "--nproc-per-node=2", "--rdzv-backend=c10d",
                          f"--rdzv-id={JOB}", f"--rdzv-endpoint=127.0.0.1:{self.port}",
                          f"--local-addr={name}", "--max-restarts=3", "--last-call=1", "--grow-after=1",
                          "--rdzv-conf=is_host=false", "--log-dir=runs",
                          self.program, "--steps=1000000", "--step-ms=20",
                          *(["--slow-rank=2"] if SCREENSHOTS else []),
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def workers(self, agent):
        """The pids of the agent's workers, the youngest last."""
        name = pathlib.Path(self.program).name
        found, parents = [], [agent.pid]
        listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,comm="], stdout=subprocess.PIPE,
                                text=True, check=True).stdout
        rows = [line.split(None, 2) for line in listed.splitlines()]
        while parents:
            parent = parents.pop()
            for pid, above, comm in rows:
                if int(above) == parent:
                    parents.append(int(pid))
                    if comm.strip() == name[:15]:
                        found.append(int(pid))
        return sorted(found)

    def close(self):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class RealJob(unittest.TestCase):
    """One job, and what befalls it, in the order of the names."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(REGROUP, ELASTIC)
        cls.addClassCleanup(cls.cluster.close)
        cls.agents = [cls.cluster.agent(f"127.0.0.{i}") for i in (1, 2, 3)]
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.__exit__)
        cls.url = f"http://127.0.0.1:{cls.cluster.port}/"

    def wait(self, condition, limit=20):
        try:
            return self.browser.wait(condition, limit)
        except AssertionError as error:
            seen = self.browser.value("document.body.innerText")
            raise AssertionError(f"{error}; the page says:\n{seen[:1500]}") from None

    def act(self, button, token=None, reason="new memory modules"):
        """Clicks a button that asks, and agrees."""
        self.browser.value(f"document.querySelector({button!r}).click()")
        self.wait("document.querySelector('dialog[open]')")
        fields = {"reason": reason, **({"token": token} if token else {})}
        for name, text in fields.items():
            self.browser.value(f"document.querySelector('dialog [data-slot={name}]').value = {text!r}")
        self.browser.value("document.querySelector('dialog button[type=submit]').click()")

    def screenshots(self, name):
        if SCREENSHOTS:
            time.sleep(15)
            for width, dark in ((1280, False), (390, True)):
                self.browser.resize(width, 900, dark)
                time.sleep(1.2)  # The timeline is drawn again.
                self.browser.screenshot(SCREENSHOTS / f"{name}-{width}.png")
            self.browser.resize(1280, 900)

    def test_1_the_list_leads_to_the_job(self):
        self.browser.open(self.url)
        self.wait(f"{VIEW}.jobs === '1'")
        self.browser.value("document.querySelector('tr[data-job] a').click()")
        self.wait(f"{VIEW}.phase === 'training'")
        self.wait("document.querySelectorAll('tr[data-state=running] [data-rank]').length === 6")
        self.assertEqual(self.browser.value("document.querySelector('h1').textContent"), JOB)

    def test_2_a_killed_worker_is_shown(self):
        self.wait("document.querySelector('article').dataset.phase === 'training'")
        rounds = int(self.browser.value(f"{VIEW}.round"))
        known = int(self.browser.value(f"{VIEW}.recoveries"))
        if SCREENSHOTS:
            time.sleep(20)  # For something to see.
        victim = self.cluster.workers(self.agents[1])[-1]
        os.kill(victim, signal.SIGKILL)
        failed = self.wait("document.querySelector('[data-event=failed]') && "
                           "document.querySelector('[data-slot=failure]').dataset.rank !== undefined")
        recovered = failed + self.wait("document.querySelector('[data-recovery][data-kind=unplanned]')")
        lasted = self.browser.value("document.querySelector('[data-kind=unplanned]').dataset.totalMs")
        print(f"the page showed the failure {failed * 1000:.0f} ms after the kill, and the recovery, "
              f"which took {lasted} ms, after {recovered * 1000:.0f} ms")
        self.wait(f"Number({VIEW}.recoveries) > {known} && document.querySelector('[data-event=recovered]')")
        self.wait("document.querySelectorAll('tr[data-state=running] [data-rank]').length === 6")
        self.wait("document.querySelector('.mark.unplanned') && document.querySelectorAll('rect.round').length >= 2")
        self.assertGreater(int(self.browser.value(f"{VIEW}.round")), rounds)
        self.assertEqual(self.browser.value(
            "document.querySelector('[data-budget=failures] meter').value"), 1)

    def test_3_a_wrong_token_is_refused(self):
        self.act("[data-node='127.0.0.3'] button", token="rg1.nonsense")
        self.wait("!document.querySelector('dialog [data-slot=answer]').hidden")
        self.assertEqual(self.browser.value("document.querySelectorAll('tr[data-node]').length"), 3)
        self.browser.value("document.querySelector('dialog [data-slot=cancel]').click()")
        self.wait("!document.querySelector('dialog')")

    def test_4_a_node_is_drained(self):
        self.act("[data-node='127.0.0.3'] button", token=self.cluster.operator)
        self.wait("!document.querySelector('dialog') && !document.querySelector(\"[data-node='127.0.0.3']\")")
        self.wait("document.querySelector('[data-recovery][data-kind=planned]') && "
                  "document.querySelector('[data-event=draining]')")
        self.screenshots("page")
        self.assertEqual(self.browser.value("document.cookie + localStorage.length + sessionStorage.length"), "00")

    def test_5_the_page_connects_again(self):
        self.cluster.daemon.kill()
        self.cluster.daemon.wait()
        self.wait("document.getElementById('connection').dataset.connection === 'lost'")
        self.assertEqual(self.browser.value("document.getElementById('main').dataset.fresh"), "false")
        self.assert_no_token_is_sent_to_whoever_has_the_port_now()
        self.cluster.serve()
        self.wait("document.getElementById('connection').dataset.connection === 'live'")
        self.wait(f"{VIEW}.phase === 'training' && document.querySelectorAll('tr[data-node]').length === 2")

    def assert_no_token_is_sent_to_whoever_has_the_port_now(self):
        with socket.create_server(("127.0.0.1", self.cluster.port)) as squatter:
            squatter.settimeout(20)
            self.act("[data-slot=stop]", token=self.cluster.operator)
            self.wait("!document.querySelector('dialog [data-slot=answer]').hidden")
            self.browser.value("document.querySelector('dialog [data-slot=cancel]').click()")
            request = ""
            while not request.startswith("GET"):  # Agents come back, too.
                connection, _ = squatter.accept()
                with connection:
                    request = connection.recv(65536).decode(errors="replace")
        self.assertIn("GET /api/v1/stream", request)
        self.assertNotIn("Authorization", request)
        self.assertNotIn("regroup1.", request)

    def test_6_the_job_is_stopped(self):
        self.act("[data-slot=stop]")
        self.wait("!document.querySelector('dialog [data-slot=answer]').hidden")  # No token is kept.
        self.browser.value("document.querySelector('dialog [data-slot=cancel]').click()")
        self.wait("!document.querySelector('dialog')")
        self.act("[data-slot=stop]", token=self.cluster.operator)
        self.wait(f"{VIEW}.phase === 'closed' && document.querySelector('[data-event=closed]')")
        self.assertTrue(self.browser.value("document.querySelector('[data-slot=stop]').hidden"))
        self.assertEqual(self.browser.value("document.querySelector('[data-slot=phase]').dataset.outcome"), "stopped")

    def test_7_the_page_breaks_no_rule_of_its_own(self):
        complaints = [text for text in self.browser.complaints() if "Failed to load resource" not in text]
        self.assertEqual(complaints, [])
        self.assertEqual(self.browser.value(HERE.joinpath("modules.js").read_text()), [])

    def test_8_a_job_that_is_not_there(self):
        self.browser.open(self.url + "#jobs/no%20such%20job")
        self.wait(f"{VIEW}.phase === 'unknown'")
        assert_says_that_there_is_no_job(self, self.browser, "no such job")


def assert_says_that_there_is_no_job(test, page, name):
    """Only that, and no panels without content below it."""
    test.assertIn(name, page.value("document.querySelector('[data-slot=sentence]').textContent"))
    test.assertTrue(page.value("document.querySelector('.panels').hidden"))
    test.assertFalse(page.value("document.getElementById('all-jobs').hidden"))


class LargeJob(unittest.TestCase):
    """1,000 nodes with 8 ranks each, computed by a stand-in for the daemon."""

    def test_the_page_stays_small(self):
        server = stand_in.StandIn(stand_in.Job("large", 1000, 8), every=0.25)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        with browser.Browser() as page:
            page.open(server.url + "#jobs/large", width=390)
            page.wait("document.querySelectorAll('tr[data-node]').length === 32", 20)
            elements = page.value("document.querySelectorAll('*').length")
            self.assertLess(elements, 3000)
            # Those in trouble come first.
            self.assertEqual(page.value("document.querySelector('tr[data-node]').dataset.state"), "away")
            self.assertLessEqual(page.value("document.documentElement.scrollWidth"), 390)
            page.value("""{
                window.added = 0;
                new MutationObserver((records) => {
                    for (const record of records) { window.added += record.addedNodes.length; }
                }).observe(document.querySelector('[data-slot=nodes]'), {childList: true, subtree: true});
            }""")
            round_before = int(page.value(f"{VIEW}.round"))
            server.publish(server.job.recover(server.job.now()))
            page.wait(f"Number({VIEW}.round) > {round_before}", 20)
            # The texts that changed, and no row.
            self.assertLess(page.value("window.added"), 32 * 8)
            page.value("""{
                const filter = document.getElementById('filter');
                filter.value = 'node777';
                filter.dispatchEvent(new Event('input'));
            }""")
            page.wait("document.querySelectorAll('tr[data-node]').length === 1", 20)
            self.assertEqual(page.complaints(), [])


class LongJob(unittest.TestCase):
    """A job that has run for days, with long names."""

    def test_no_text_leaves_its_box(self):
        name = "pretraining-of-the-large-model-with-the-second-tokenizer_" * 2
        node = "gpu-node-with-the-very-long-name-of-a-cloud-provider-in-europe-west-"
        for age in (5 * 60 + 15, 23 * 3600 + 59 * 60 + 59, 123 * 86400 + 23 * 3600):
            server = stand_in.StandIn(stand_in.Job(name, 3, 4, age=age, node=node), every=0.25)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.addCleanup(server.server_close)
            self.addCleanup(server.shutdown)
            with browser.Browser() as page:
                page.open(f"{server.url}#jobs/{name}")
                page.wait(f"{VIEW}.phase === 'training'", 20)
                for width in (320, 390, 700, 1024, 1280, 1920):
                    page.resize(width, 900)
                    page.wait(f"window.innerWidth === {width}")
                    self.assertEqual(page.value(HERE.joinpath("overflow.js").read_text()), [],
                                     f"{age} s old, {width} pixels wide")


class AnotherJob(unittest.TestCase):
    """A viewer whose token is for one job looks at another."""

    def test_the_page_says_that_there_is_no_such_job(self):
        server = stand_in.StandIn(stand_in.Job("nightly", 2, 2))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        with browser.Browser() as page:
            page.open(f"{server.url}#jobs/daily")
            page.wait(f"{VIEW}.phase === 'unknown'")
            assert_says_that_there_is_no_job(self, page, "daily")
            self.assertNotIn("{", page.value("document.getElementById('connection').textContent"))


class PlainHttp(unittest.TestCase):
    """The page of a daemon on another host, without TLS."""

    def test_no_token_of_an_operator_is_asked_for(self):
        server = stand_in.StandIn(stand_in.Job("nightly", 2, 2))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        with browser.Browser() as page:
            for host, refused in (("127.0.0.1", False), (browser.OTHER_HOST, True)):
                page.open(f"http://{host}:{server.server_address[1]}/#jobs/nightly")
                page.wait(f"{VIEW}.phase === 'training' && document.querySelector('[data-slot=stop]')")
                page.value("document.querySelector('[data-slot=stop]').click()")
                page.wait("document.querySelector('dialog[open]')")
                for field in ("token", "confirm"):
                    self.assertEqual(
                        page.value(f"document.querySelector('dialog [data-slot={field}]').disabled"), refused)
                self.assertEqual(
                    page.value("document.querySelector('dialog [data-slot=answer]').hidden"), not refused)


if __name__ == "__main__":
    if browser.find_chromium() is None:
        print("skipped: there is no Chromium (sh cmake/setup.sh browser)")
        sys.exit(77)
    if "--screenshots" in sys.argv:
        where = sys.argv.index("--screenshots")
        SCREENSHOTS = pathlib.Path(sys.argv[where + 1])
        del sys.argv[where:where + 2]
    REGROUP, ELASTIC = sys.argv[1:3]
    del sys.argv[1:3]
    unittest.main(verbosity=2)
