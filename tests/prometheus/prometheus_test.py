# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes a real daemon with a real job, one of whose workers is killed."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

PROGRAM = os.environ["REGROUP_PROGRAM"]
ELASTIC = os.environ["ELASTIC_EXAMPLE"]
MONITORING = os.environ["MONITORING_FOLDER"]
TOOLS = os.environ.get("PROMETHEUS_FOLDER", "")
HERE = os.path.dirname(os.path.abspath(__file__))
DEADLINE_S = 60
# Requests of this test stay on this host.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def tool(name):
    return shutil.which(name, path=os.environ["PATH"] + os.pathsep + TOOLS)


def surroundings():
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("REGROUP_", "TORCHELASTIC_", "PET_"))}
    return dict(kept, NO_PROXY="*")


def get(url, accept=None):
    request = urllib.request.Request(url, headers={"Accept": accept} if accept else {})
    with OPENER.open(request, timeout=DEADLINE_S) as reply:
        return reply.headers["Content-Type"], reply.read().decode()


def wait_for(what, check):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("waited in vain for " + what)


def samples_of(text):
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
            for line in text.splitlines() if line and not line.startswith("#")}


def rules():
    """The alerts by name. A file of this form needs no parser of YAML."""
    with open(os.path.join(MONITORING, "alerts.yml"), encoding="utf-8") as file:
        text = file.read()
    found = re.findall(r"- alert: (\w+)\n +expr: (?:>-\n)?(.*?)\n +(?:for|labels):", text, re.DOTALL)
    return {name: " ".join(expression.split()) for name, expression in found}


def dashboard():
    with open(os.path.join(MONITORING, "grafana.json"), encoding="utf-8") as file:
        return json.load(file)


class Monitored:
    """A daemon, a job, and a Prometheus that scrapes the daemon five times a second."""

    def __init__(self):
        self.processes = []
        self.folder = tempfile.mkdtemp(prefix="regroup-prometheus-")
        self.logs = {}

    def start(self, name, *command, **more):
        self.logs[name] = os.path.join(self.folder, name + ".log")
        with open(self.logs[name], "wb") as log:
            process = subprocess.Popen(command, env=dict(surroundings(), **more), cwd=self.folder,
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def log(self, name):
        with open(self.logs[name], encoding="utf-8", errors="replace") as file:
            return file.read()

    def start_job(self):
        self.start("daemon", PROGRAM, "serve", "--listen=127.0.0.1:0", "--state=none")
        self.endpoint = wait_for("the daemon", lambda: re.search(
            r"listening on (127\.0\.0\.1:\d+)", self.log("daemon"))).group(1)
        self.url = "http://" + self.endpoint + "/metrics"
        self.job = self.start(
            "job", PROGRAM, "run", "--rdzv-backend=c10d", "--rdzv-id=nightly",
            "--rdzv-endpoint=" + self.endpoint, "--rdzv-conf=is_host=false",
            "--nproc-per-node=2", "--max-restarts=5", ELASTIC, "--steps", "1000000", "--step-ms",
            "10")
        wait_for("the first step", lambda: self.sample('regroup_job_step{job_id="nightly"}'))

    def start_prometheus(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % free.getsockname()[1]
        config = os.path.join(self.folder, "prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            file.write("""
global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 1s}
rule_files: ["%s"]
scrape_configs:
  - job_name: regroup
    params: {nodes: ["1"]}
    static_configs: [{targets: ["%s"]}]
""" % (os.path.join(MONITORING, "alerts.yml"), self.endpoint))
        self.start("prometheus", tool("prometheus"), "--config.file=" + config,
                   "--storage.tsdb.path=" + os.path.join(self.folder, "data"),
                   "--web.listen-address=" + address)
        self.api = "http://" + address + "/api/v1/"
        wait_for("Prometheus", lambda: self.query('regroup_job_step{job_id="nightly"}'))

    def sample(self, series):
        return samples_of(get(self.url)[1]).get(series)

    def ask(self, path, **arguments):
        try:
            text = get(self.api + path + "?" + urllib.parse.urlencode(arguments))[1]
        except urllib.error.HTTPError as error:
            text = error.read().decode()
        except OSError as error:
            text = str(error)
        try:
            return json.loads(text)
        except ValueError:
            return {"status": "error", "error": text}  # It is being started.

    def query(self, expression):
        answer = self.ask("query", query=expression)
        return answer["data"]["result"] if answer["status"] == "success" else []

    def kill_worker(self):
        before = self.sample('regroup_job_restarts_total{job_id="nightly",cause="failure"}')
        os.kill(max(workers_of(self.job.pid)), signal.SIGKILL)
        wait_for("the recovery", lambda: self.query(
            'regroup_job_restarts_total{job_id="nightly",cause="failure"} > %d' % before))

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def workers_of(launcher):
    """The processes of the example below the launcher."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/" + name + "/stat", encoding="utf-8", errors="replace") as file:
                program, _, rest = file.read().partition("(")[2].rpartition(")")
        except OSError:
            continue  # It has ended.
        parents[int(name)] = (program, int(rest.split()[1]))

    def is_below(pid):
        while pid in parents and pid != launcher:
            pid = parents[pid][1]
        return pid == launcher
    return [pid for pid, (program, _) in parents.items()
            if program == os.path.basename(ELASTIC) and is_below(pid)]


MONITORED = Monitored()


def setUpModule():
    unittest.addModuleCleanup(MONITORED.end)
    MONITORED.start_job()
    MONITORED.start_prometheus()
    MONITORED.kill_worker()
    wait_for("a second scrape", lambda: MONITORED.query(
        "changes(regroup_job_last_step_timestamp_seconds[5s]) > 1"))


class Endpoint(unittest.TestCase):
    def test_promtool_accepts_the_metrics(self):
        kind, text = get(MONITORED.url + "?nodes=1")
        self.assertEqual(kind, "text/plain; version=0.0.4; charset=utf-8")
        done = subprocess.run([tool("promtool"), "check", "metrics"], input=text, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=DEADLINE_S)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_openmetrics_is_served_on_request(self):
        kind, text = get(MONITORED.url, "application/openmetrics-text;version=1.0.0")
        self.assertEqual(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8")
        self.assertTrue(text.endswith("\n# EOF\n"))

    def test_nodes_and_jobs_are_chosen_by_the_query(self):
        everything = samples_of(get(MONITORED.url)[1])
        nodes = samples_of(get(MONITORED.url + "?nodes=1")[1])
        self.assertEqual({name.partition("{")[0] for name in set(nodes) - set(everything)},
                         {"regroup_node_up", "regroup_node_silence_seconds", "regroup_node_step",
                          "regroup_node_first_rank", "regroup_node_quarantined"})
        job = samples_of(get(MONITORED.url + "?job=nightly")[1])
        self.assertFalse([name for name in job if name.startswith("regroup_daemon")])
        self.assertIn('regroup_job_ranks{job_id="nightly"}', job)
        with self.assertRaises(urllib.error.HTTPError) as caught:
            get(MONITORED.url + "?job=other")
        self.assertEqual(caught.exception.code, 404)


class Scraped(unittest.TestCase):
    def value(self, expression):
        answer = MONITORED.query(expression)
        self.assertEqual(len(answer), 1, expression)
        return float(answer[0]["value"][1])

    def test_scrapes_succeed_as_openmetrics(self):
        target = MONITORED.ask("targets")["data"]["activeTargets"][0]
        self.assertEqual((target["health"], target["lastError"]), ("up", ""))
        metadata = MONITORED.ask("targets/metadata", metric="regroup_recovery_seconds")["data"]
        self.assertEqual((metadata[0]["type"], metadata[0]["unit"]), ("histogram", "seconds"))

    def test_recovery_is_counted(self):
        self.assertEqual(self.value('sum(regroup_job_restarts_total)'), 1)
        self.assertEqual(self.value('regroup_recovery_seconds_count{stage="total"}'), 1)
        self.assertGreater(self.value('regroup_recovery_seconds_sum{stage="total"}'), 0)
        self.assertGreater(self.value('increase(regroup_job_restarts_total{cause="failure"}[1m])'),
                           0)
        self.assertGreater(self.value("regroup_job_last_recovery_timestamp_seconds"),
                           self.value("regroup_job_start_timestamp_seconds"))
        self.assertEqual(self.value('regroup_job_budget_used{budget="failures"}'), 1)
        self.assertEqual(self.value("regroup_job_ranks"), 2)

    def test_ettr_is_a_ratio_of_counters(self):
        ettr = self.value('sum(rate(regroup_job_seconds_total{state="productive"}[1m])) / '
                          'sum(rate(regroup_job_seconds_total[1m]))')
        self.assertGreater(ettr, 0)
        self.assertLessEqual(ettr, 1)


class Queries(unittest.TestCase):
    def check(self, title, expression):
        with self.subTest(title, expression=expression):
            answer = MONITORED.ask("query", query=expression)
            self.assertEqual(answer["status"], "success", answer.get("error"))
            self.assertTrue(answer["data"]["result"], "an empty answer")

    def test_dashboard(self):
        board = dashboard()
        variables = {variable["name"] for variable in board["templating"]["list"]}
        self.assertEqual(variables, {"datasource", "job"})
        panels = [panel for panel in board["panels"] if panel["type"] != "row"]
        self.assertGreater(len(panels), 10)
        for panel in panels:
            self.assertEqual(panel["datasource"]["uid"], "${datasource}", panel["title"])
            for target in panel["targets"]:
                expression = target["expr"].replace("$job", ".*").replace("$__range", "1m")
                self.check(panel["title"], expression.replace("$__rate_interval", "10s"))

    def test_documentation(self):
        with open(os.environ["METRICS_PAGE"], encoding="utf-8") as file:
            section = file.read().partition("## ETTR and goodput")[2].partition("\n## ")[0]
        queries = re.findall(r"^\| (.+) \| `(.+)` \|$", section, re.MULTILINE)
        self.assertGreater(len(queries), 5)
        for question, expression in queries:
            self.check(question, re.sub(r"\[1[hd]\]", "[1m]", expression))

    def test_choice_of_the_job(self):
        choice = next(variable for variable in dashboard()["templating"]["list"]
                      if variable["name"] == "job")
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)",
                                     choice["query"]["query"]).groups()
        answer = MONITORED.ask("label/" + label + "/values", **{"match[]": metric})
        self.assertEqual(answer["data"], ["nightly"])

    def test_alerts(self):
        loaded = wait_for("the rules", lambda: [
            rule for group in MONITORED.ask("rules")["data"]["groups"] for rule in group["rules"]
            if rule["health"] != "unknown"])
        self.assertEqual({rule["name"] for rule in loaded}, set(rules()))
        for rule in loaded:
            self.assertEqual(rule["health"], "ok", rule)
        for name, expression in rules().items():
            # An alert is empty as long as all is well: compare, but keep what is compared.
            kept = re.sub(r" (==|<|>) ([\d.]+)$", r" \1 bool \2", expression)
            self.assertIn(" bool ", kept, name)
            self.check(name, kept)


class Rules(unittest.TestCase):
    def test_alerts_fire_when_they_should(self):
        done = subprocess.run([tool("promtool"), "test", "rules", "alerts_test.yml"], cwd=HERE,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stdout)
        with open(os.path.join(HERE, "alerts_test.yml"), encoding="utf-8") as file:
            fired = set(re.findall(r"alertname: (\w+)\n +exp_alerts:", file.read()))
        self.assertEqual(fired, set(rules()), "each alert needs a test in which it fires")

    def test_configuration_is_valid(self):
        done = subprocess.run([tool("promtool"), "check", "config", "--syntax-only",
                               os.path.join(MONITORING, "prometheus.yml")],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    if not tool("prometheus") or not tool("promtool"):
        print("skipped: there is no prometheus; `sh cmake/setup.sh test` unpacks it")
        sys.exit(77)
    unittest.main()
