# SPDX-License-Identifier: Apache-2.0
"""Stands in for a daemon: serves the page, and the status and the events of a job that is only
computed. For jobs that are too large for the machine of a test.

    python3 tests/browser/stand_in.py --nodes 1000 --ranks 8 --port 8080
"""
import argparse
import datetime
import http.server
import json
import pathlib
import queue
import random
import threading
import time
import urllib.parse

PAGE = pathlib.Path(__file__).resolve().parents[2] / "rendezvous" / "http" / "page"
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
          "connect-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'")
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
STAGES = ["detect", "decide", "stop", "join", "communicator", "state", "first_step"]


def utc(seconds):
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


class Job:
    """A job that has run for `age` seconds, with a failure now and then."""

    def __init__(self, name, nodes, ranks, age=3600.0, recoveries=12, telemetry=True, node="node"):
        self.name, self.nodes, self.ranks, self.telemetry = name, nodes, ranks, telemetry
        self.node = node  # The names of the nodes are this and a number.
        self.began = time.time() - age
        self.random = random.Random(7)
        self.round = 0
        self.events, self.incidents, self.failure = [], [], None
        self.busy = 3.0
        self.lost_s = 0.0
        self._assign(2.0, "node_lost", "the first round")
        self.add("running", 3.0)
        for i in range(recoveries):
            self.recover(30.0 + (age - 60.0) * i / max(1, recoveries), planned=i % 4 == 3)

    def now(self):
        return time.time() - self.began

    def add(self, event, at, **fields):
        line = {"time": utc(self.began + at), "job": self.name, "number": len(self.events) + 1,
                "job_time_s": at, "event": event, "round": self.round, "step": int(at * 40), **fields}
        self.events.append(line)
        return line

    def _assign(self, at, cause, text):
        self.round += 1
        members = [{"node": f"{self.node}{i}", "first_rank": i * self.ranks, "workers": self.ranks}
                   for i in range(self.nodes)]
        return self.add("assigned", at, cause=cause, text=text, nodes=members,
                        group_world_size=self.nodes, world_size=self.nodes * self.ranks)

    def recover(self, at, planned=False):
        """The job recovers at `at`; returns the new events."""
        first = len(self.events)
        rank = self.random.randrange(self.nodes * self.ranks)
        node = f"{self.node}{rank // self.ranks}"
        times = [self.random.uniform(0.001, 0.02) * (1 + 3 * (i in (2, 6))) for i in range(7)]
        if planned:
            times[0] = 0
            cause = f"node {node} is drained by ann@login1: new memory modules"
            self.add("draining", at, node=node, cause="drained", text=cause)
        else:
            cause = f"rank {rank} on {node} was ended by SIGKILL"
            self.add("failed", at, node=node, rank=rank, cause="signal", text=cause)
            self.failure = {"time": utc(self.began + at), "rank": rank, "node": node, "host": node,
                            "pid": 4711, "exit_code": 137, "text": cause,
                            "log_file": f"regroup-runs/{self.name}/round-{self.round}/{rank}.log",
                            "last_output": "step 812 loss 2.31\nstep 813 loss 2.30\nstep 814 loss 2.30\n"}
        lost = 0 if planned or self.random.random() < 0.7 else self.random.randrange(1, 9)
        self.add("ending", at, cause="failure", text=cause)
        old = self.round
        self._assign(at + sum(times[:4]), "failure", cause)
        end = at + sum(times)
        self.add("running", end)
        self.add("recovered", end, planned=planned, cut_short=False, next_round=self.round,
                 cause="failure", text=cause, lost_steps=lost,
                 stages_s={**dict(zip(STAGES, times)), "total": sum(times)})
        self.incidents.append({"round": old, "next_round": self.round, "cause": cause,
                               "planned": planned, "lost_steps": lost, "step": int(end * 40),
                               "decision": f"started again on node {node}",
                               **{f"{name}_us": int(t * 1e6) for name, t in zip(STAGES, times)}})
        self.lost_s += sum(times)
        return self.events[first:]

    def status(self):
        age = self.now()
        step = int(age * 40)
        nodes = []
        for i in range(self.nodes):
            nodes.append({"name": f"{self.node}{i}", "address": f"10.{i // 65536}.{i // 256 % 256}.{i % 256}",
                          "place": "member", "state": "running", "workers": self.ranks,
                          "elastic": True, "step": step - i % 2, "held_step": step,
                          "silent_s": round(self.random.uniform(0, 1), 3), "group_rank": i,
                          "first_rank": i * self.ranks})
        for i, place in enumerate(["standby", "standby", "quarantined", "away", "waiting"]):
            nodes.append({"name": f"{self.node}{self.nodes + i}", "address": f"10.9.9.{i}", "place": place,
                          "state": "stopped", "workers": self.ranks, "elastic": True, "step": 0,
                          "held_step": 0, "silent_s": 0.3})
        job = {"job": self.name, "phase": "training", "state": "productive",
               "began": utc(self.began), "time": utc(time.time()), "age_s": age, "step_rate": 40.0,
               "last_event": len(self.events), "text": f"round {self.round} is running on {self.nodes} nodes",
               "round": self.round, "world_size": self.nodes * self.ranks, "elastic": True,
               "step": step, "lasted_s": age - 2, "lost_s": self.lost_s, "lost_at_end_s": 0.0,
               "incidents_count": len(self.incidents),
               "recoveries_text": f"{len(self.incidents)} recoveries took {self.lost_s:.1f} s",
               "incidents_planned": sum(one["planned"] for one in self.incidents),
               "incidents_cut_short": 0, "incidents_until_start": 0,
               "lost_steps": sum(one["lost_steps"] for one in self.incidents), "lost_at_least": False,
               "restarts": len(self.incidents), "nodes": nodes,
               "quarantined": [{"name": f"{self.node}{self.nodes + 2}", "left_s": 240.0,
                                "reason": "3 failures of its workers in 10 min",
                                "text": f"node {self.node}{self.nodes + 2} is quarantined for 240 s"}],
               "budgets": [{"what": "failures", "used": 1, "allowed": 3}, {"what": "node losses", "used": 0},
                           {"what": "rounds without progress", "used": 0, "allowed": 5}],
               "incidents": self.incidents[-100:],
               "step_samples": [[age * i / 400, int(age * i / 400 * 40)] for i in range(400)],
               "totals": {"time_s": {"waiting": 3.0, "productive": age - 3 - self.lost_s, "planned": 0.1,
                                     "recovering": self.lost_s, "lost": 0.4}}}
        if self.failure:
            job["last_failure"] = self.failure
        if self.telemetry:
            job["telemetry"] = {"values": {"loss": 2.31}, "samples_per_s": 81920.0,
                                "step_s": {"data": 0.001, "compute": 0.018, "communication": 0.004,
                                           "waiting": 0.002}}
            job["slow_ranks"] = [{"rank": min(3, self.nodes * self.ranks - 1), "excess": 0.42}]
        return json.dumps({"version": 1, "jobs": [job]}, separators=(",", ":"))


def without_nodes(event):
    return {name: value for name, value in event.items() if name != "nodes"}


class StandIn(http.server.ThreadingHTTPServer):
    """Serves one job. `publish` sends an event to all viewers; `bytes_sent` counts bodies."""
    daemon_threads = True

    def __init__(self, job, port=0, every=1.0):
        super().__init__(("127.0.0.1", port), Handler)
        self.job, self.every = job, every
        self.bytes_sent = {}
        self.lock = threading.Lock()
        self.viewers = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def publish(self, events):
        text = "".join(f"event: job\ndata: {json.dumps(without_nodes(event))}\n\n" for event in events)
        with self.lock:
            for viewer in self.viewers:
                viewer.put(text)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        job = self.server.job
        file = PAGE / ("index.html" if url.path == "/" else url.path.lstrip("/"))
        wanted = urllib.parse.parse_qs(url.query).get("job", [job.name])[0]
        if url.path == "/api/v1/stream" and wanted != job.name:
            # As a daemon answers who may see one job only.
            self.answer("application/json", json.dumps({"error": f"there is no job {wanted}"}).encode(), 404)
        elif url.path == "/api/v1/stream":
            self.stream()
        elif url.path.endswith("/events"):
            events = job.events if url.query != "nodes=0" else [without_nodes(e) for e in job.events]
            self.answer("application/x-ndjson", "".join(json.dumps(e) + "\n" for e in events).encode())
        elif url.path.startswith("/api/v1/jobs"):
            self.answer("application/json", job.status().encode())
        elif file.parent == PAGE and file.is_file():
            self.answer(TYPES[file.suffix], file.read_bytes())
        else:
            self.send_error(404)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_error(401)

    def answer(self, kind, body, status=200):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)
        with self.server.lock:
            self.server.bytes_sent[self.path] = len(body)

    def stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        viewer = queue.Queue()
        with self.server.lock:
            self.server.viewers.append(viewer)
        try:
            while True:
                text = f"event: status\ndata: {self.server.job.status()}\n\n"
                with self.server.lock:
                    self.server.bytes_sent.setdefault(self.path, len(text))
                self.wfile.write(text.encode())
                try:
                    self.wfile.write(viewer.get(timeout=self.server.every).encode())
                except queue.Empty:
                    pass
        except OSError:
            pass
        finally:
            with self.server.lock:
                self.server.viewers.remove(viewer)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--nodes", type=int, default=4)
    options.add_argument("--ranks", type=int, default=8)
    options.add_argument("--port", type=int, default=8080)
    options.add_argument("--recover-every", type=float, default=0, help="seconds; 0: never")
    chosen = options.parse_args()
    server = StandIn(Job("nightly", chosen.nodes, chosen.ranks), chosen.port)
    print(server.url, flush=True)
    if chosen.recover_every:
        def recover():
            while True:
                time.sleep(chosen.recover_every)
                server.publish(server.job.recover(server.job.now()))
        threading.Thread(target=recover, daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
