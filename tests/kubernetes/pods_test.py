# SPDX-License-Identifier: Apache-2.0
"""Runs the pods of an Indexed Job without Kubernetes: each in its own network, host name, process
namespace and /etc, with the environment that Kubernetes gives it, and a name server that learns names
late, forgets them and falls silent.

    REGROUP_PROGRAM=... pods_test.py SCENARIO
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

REGROUP = os.environ["REGROUP_PROGRAM"]
HERE = pathlib.Path(__file__).parent
DOMAIN = "default.svc.cluster.local"
LIMIT_S = 60

# A worker. It tells where it is, leaves an orphan behind, and trains until it may finish.
WORKER = """
cp "$(command -v sleep)" "$OUT/orphan.$RANK"
("$OUT/orphan.$RANK" 0.1 &)
trap 'echo saved > "$OUT/saved.$RANK"; exit 0' TERM
echo "$(hostname) $WORLD_SIZE $REGROUP_MASTER_NODE_ADDR" > "$OUT/new.$$.$RANK"
mv "$OUT/new.$$.$RANK" "$OUT/round.$REGROUP_ROUND.$RANK"
while [ ! -e "$OUT/finish" ]; do sleep 0.05; done
"""


def eventually(what, condition):
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {LIMIT_S} s: {what}")


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


class Cluster:
    """A network with a name server, and pods."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="regroup-pods-"))
        self.out = self.folder / "out"
        self.out.mkdir()
        self.name = f"rg{os.getpid()}"
        self.networks = []
        self.processes = []
        self.pods = []
        self.state = {"names": {}}
        self.network = self.add_network("net")
        # Without an address of its own a bridge takes one of its links', and changes it with them.
        ip("-n", self.network, "link", "add", "bridge0", "address", "02:00:00:00:00:01",
           "type", "bridge")
        ip("-n", self.network, "address", "add", "10.78.0.1/24", "dev", "bridge0")
        ip("-n", self.network, "link", "set", "bridge0", "up")
        self.write_names()
        self.write_secret()
        (self.folder / "resolv.conf").write_text(
            f"nameserver 10.78.0.1\nsearch {DOMAIN} svc.cluster.local cluster.local\n"
            "options ndots:5\n", encoding="ascii")
        (self.folder / "worker.sh").write_text(WORKER, encoding="ascii")
        server = self.spawn(["ip", "netns", "exec", self.network, sys.executable,
                             str(HERE / "name_server.py"), "10.78.0.1", str(self.folder / "names")],
                            stdout=subprocess.PIPE)
        server.stdout.readline()

    def add_network(self, suffix):
        name = f"{self.name}-{suffix}"
        ip("netns", "add", name)
        self.networks.append(name)
        ip("-n", name, "link", "set", "lo", "up")
        return name

    def spawn(self, command, **options):
        process = subprocess.Popen(command, **options)
        self.processes.append(process)
        return process

    def write_secret(self):
        """As a kubelet mounts it: a link to a link."""
        subprocess.run([REGROUP, "token", "--generate", f"--token-file={self.folder}/made"],
                       check=True, stdout=subprocess.DEVNULL)
        (self.folder / "secret" / "..data_1").mkdir(parents=True)
        (self.folder / "made").rename(self.folder / "secret" / "..data_1" / "token")
        (self.folder / "secret" / "..data_1" / "token").chmod(0o440)
        (self.folder / "secret" / "..data").symlink_to("..data_1")
        (self.folder / "secret" / "token").symlink_to("..data/token")

    def write_names(self):
        new = self.folder / "names.new"
        new.write_text(json.dumps(self.state), encoding="ascii")
        new.rename(self.folder / "names")

    def publish(self, *pods):
        for pod in pods:
            self.state["names"][pod.full_name] = pod.address
        self.write_names()

    def forget(self, *pods):
        for pod in pods:
            self.state["names"].pop(pod.full_name, None)
        self.write_names()

    def silence(self, silent):
        self.state["silent"] = silent
        self.write_names()

    def pod(self, host, command, environment=None, subdomain="train"):
        pod = Pod(self, host, command, environment or {}, subdomain)
        self.pods.append(pod)
        return pod

    def worker(self, index, flags=("--nnodes=3",)):
        return self.pod(f"train-{index}", ["run", *flags], {"JOB_COMPLETION_INDEX": str(index)})

    def ranks(self, round_number):
        """The files of a round's workers, by rank."""
        told = {}
        for file in self.out.glob(f"round.{round_number}.*"):
            host, size, master = file.read_text(encoding="ascii").split()
            told[int(file.suffix[1:])] = (host, int(size), master)
        return told

    def latest_round(self):
        return max((int(f.name.split(".")[1]) for f in self.out.glob("round.*")), default=0)

    def await_round(self, size, after=0):
        """The first whole round of so many ranks after `after`."""
        def whole():
            number = self.latest_round()
            told = self.ranks(number)
            is_whole = len(told) == size and all(size == s for _, s, _ in told.values())
            return (number, told) if number > after and is_whole else None
        return eventually(f"a round of {size} after {after}", whole)

    def finish(self, *pods):
        (self.out / "finish").touch()
        for pod in pods:
            code = pod.wait()
            assert code == 0, f"{pod.host} ended with {code}"

    def close(self, failed):
        for pod in self.pods:
            pod.kill()
            if failed:
                print(f"---- {pod.host} at {pod.address}\n{pod.output()}")
        for process in self.processes:
            process.kill()
            process.wait()
        for network in self.networks:
            ip("netns", "delete", network, check=False)
        shutil.rmtree(self.folder)


class Pod:
    """`regroup` as process 1 of a pod."""

    def __init__(self, cluster, host, command, environment, subdomain):
        self.cluster = cluster
        number = len(cluster.pods)
        self.host = host
        self.full_name = f"{host}.{subdomain}.{DOMAIN}"
        self.address = f"10.78.0.{10 + number}"
        self.network = cluster.add_network(f"p{number}")
        link = f"v{number}"
        ip("link", "add", "eth0", "netns", self.network, "type", "veth",
           "peer", "name", link, "netns", cluster.network)
        ip("-n", cluster.network, "link", "set", link, "master", "bridge0", "up")
        ip("-n", self.network, "address", "add", f"{self.address}/24", "dev", "eth0")
        ip("-n", self.network, "link", "set", "eth0", "up")
        folder = cluster.folder / f"pod{number}"
        folder.mkdir()
        (folder / "hosts").write_text(
            f"127.0.0.1 localhost\n{self.address} {self.full_name} {host}\n", encoding="ascii")
        self.log = folder / "log"
        self.variables = {"PATH": os.environ["PATH"], "HOSTNAME": host, "HOME": str(folder),
                     "KUBERNETES_SERVICE_HOST": "10.96.0.1", "OUT": str(cluster.out),
                     "POD_IP": self.address,
                     "REGROUP_TOKEN_FILE": str(cluster.folder / "secret" / "token"), **environment}
        program = [] if command[0] == "serve" else [
            "--probe-port=29401", "/bin/sh", str(cluster.folder / "worker.sh")]
        setup = (f"hostname {host} && mount --bind {folder}/hosts /etc/hosts && "
                 f"mount --bind {cluster.folder}/resolv.conf /etc/resolv.conf && exec \"$@\"")
        self.command = ["ip", "netns", "exec", self.network, "unshare", "--uts", "--mount", "--pid",
                        "--fork", "--kill-child", "--mount-proc", "sh", "-c", setup, "sh",
                        REGROUP, *command, *program]
        self.start()

    def start(self):
        """Starts the container, perhaps again in the same pod."""
        with open(self.log, "ab") as log:
            self.process = self.cluster.spawn(self.command, env=self.variables, stdout=log,
                                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def first_process(self):
        """Process 1 of the pod, as its host numbers it."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        children = pathlib.Path(path).read_text(encoding="ascii").split()
        return int(children[0]) if children else 0

    def signal(self, number):
        os.kill(eventually("the pod has a process", self.first_process), number)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def wait(self):
        return self.process.wait(timeout=LIMIT_S)

    def output(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def says(self, text):
        eventually(f"{self.host} says '{text}'", lambda: text in self.output())

    def get(self, path, port=29401):
        """Status and text of the answer to a probe, as a kubelet asks; status 0 without one."""
        script = ("import sys, urllib.request, urllib.error\n"
                  "try: a = urllib.request.urlopen(sys.argv[1], timeout=5)\n"
                  "except urllib.error.HTTPError as e: a = e\n"
                  "except OSError: print(0); sys.exit()\n"
                  "print(a.status, a.read().decode())")
        told = subprocess.run(
            ["ip", "netns", "exec", self.cluster.network, sys.executable, "-c", script,
             f"http://{self.address}:{port}{path}"], capture_output=True, text=True, check=True)
        status, _, text = told.stdout.partition(" ")
        return int(status), text.strip()

    def orphans(self):
        """Processes that the workers left behind, alive or not reaped."""
        names = subprocess.run(
            ["nsenter", "-t", str(self.first_process()), "-p", "-m", "ps", "-eo", "stat=,comm="],
            capture_output=True, text=True, check=True).stdout.splitlines()
        return [name for name in names if "orphan" in name]


def names_that_come_late(cluster):
    """The head serves without a name server; the others find it when it has a name."""
    pods = [cluster.worker(i) for i in range(3)]
    eventually("the head is alive", lambda: pods[0].get("/healthz")[0] == 200)
    pods[1].says("cannot resolve train-0.train")
    assert pods[0].get("/readyz") == (503, "not ready: waits for a round"), pods[0].get("/readyz")
    assert pods[1].get("/healthz")[0] == 200
    assert pods[1].get("/jobs")[0] == 404
    cluster.publish(*pods)
    _, told = cluster.await_round(3)
    assert [told[i][0] for i in range(3)] == ["train-0", "train-1", "train-2"], told
    # The store of the round is at an address, which no name server can forget.
    assert {master for _, _, master in told.values()} == {pods[0].address}, told
    for pod in pods:
        assert pod.get("/readyz") == (200, "ready: in a round")
    cluster.finish(*pods)


def replaced_pod(cluster):
    """A pod that is lost, and the one that replaces it under the same index at another address."""
    pods = [cluster.worker(i) for i in range(3)]
    cluster.publish(*pods)
    first, _ = cluster.await_round(3)
    pods[1].kill()
    cluster.forget(pods[1])
    replacement = cluster.worker(1)
    cluster.publish(replacement)
    _, told = cluster.await_round(3, after=first)
    assert [told[i][0] for i in range(3)] == ["train-0", "train-1", "train-2"], told
    pods[0].says("node train-1 came back to slot 1")
    cluster.finish(pods[0], replacement, pods[2])


def two_pods_of_one_index(cluster):
    """The replacement starts while the old pod still runs: it waits and is ready, then takes over."""
    pods = [cluster.worker(i) for i in range(2, 0, -1)]
    head = cluster.worker(0)
    cluster.publish(*pods, head)
    first, _ = cluster.await_round(3)
    old = pods[1]
    new = cluster.worker(1)
    eventually("the replacement is ready",
               lambda: new.get("/readyz") == (200, "ready: waits as a standby"))
    assert cluster.latest_round() == first, "the old pod trains on"
    old.kill()
    second, told = cluster.await_round(3, after=first)
    assert [told[i][0] for i in range(3)] == ["train-0", "train-1", "train-2"], told
    assert second > first
    cluster.finish(head, new, pods[0])


def replaced_head(cluster):
    """The pod with the daemon comes back at another address."""
    pods = [cluster.worker(i) for i in range(3)]
    cluster.publish(*pods)
    first, _ = cluster.await_round(3)
    pods[0].kill()
    cluster.forget(pods[0])
    pods[1].says("cannot resolve train-0.train")
    head = cluster.worker(0)
    cluster.publish(head)
    _, told = cluster.await_round(3, after=first)
    assert {master for _, _, master in told.values()} <= {p.address for p in [head, *pods[1:]]}
    assert [told[i][0] for i in range(3)] == ["train-0", "train-1", "train-2"], told
    cluster.finish(head, pods[1], pods[2])


def silent_name_server(cluster):
    """The daemon is started again while no name is resolved: the agents know where it was."""
    state = f"--state={cluster.folder}/state"
    daemon = cluster.pod("regroup-0", ["serve", state], subdomain="regroup")
    cluster.publish(daemon)
    eventually("the daemon is ready", lambda: daemon.get("/readyz", 29400)[0] == 200)
    flags = ("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=regroup-0.regroup:29400",
             "--rdzv-id=nightly")
    pods = [cluster.worker(i, flags) for i in range(2)]
    first, _ = cluster.await_round(2)
    cluster.silence(True)
    daemon.signal(signal.SIGKILL)
    daemon.wait()
    pods[0].says("reconnecting")
    daemon.start()
    for pod in pods:
        pod.says("the daemon is back at")
    assert cluster.latest_round() == first, "the workers train on"
    cluster.finish(*pods)
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


def process_one(cluster):
    """As process 1 regroup reaps orphans, passes SIGTERM on, and ends in time."""
    pod = cluster.worker(0, ("--nproc-per-node=2",))
    cluster.await_round(2)
    eventually("no orphan is left", lambda: not pod.orphans())
    pod.signal(signal.SIGTERM)
    code = pod.wait()
    assert code == 143, code
    assert sorted(f.name for f in cluster.out.glob("saved.*")) == ["saved.0", "saved.1"]


def trainer_of_kubeflow(cluster):
    """Fixed ranks: a pod that replaces one which still ends tries again, and gets its rank."""
    def node(index):
        return cluster.pod(f"llm-node-0-{index}", ["run"],
                           {"JOB_COMPLETION_INDEX": str(index), "PET_NNODES": "2",
                            "PET_NPROC_PER_NODE": "1", "PET_NODE_RANK": str(index),
                            "PET_MASTER_ADDR": "llm-node-0-0.llm", "PET_MASTER_PORT": "29500"},
                           subdomain="llm")
    head, old = node(0), node(1)
    cluster.publish(head, old)
    first, _ = cluster.await_round(2)
    new = node(1)
    cluster.publish(new)
    new.says("both claim --node-rank 1; trying again")
    assert cluster.latest_round() == first, "the old pod trains on"
    old.signal(signal.SIGTERM)
    second, told = cluster.await_round(2, after=first)
    assert [told[i][0] for i in range(2)] == ["llm-node-0-0", "llm-node-0-1"], told
    # Pod 0, which has the daemon, is replaced at another address.
    head.kill()
    cluster.forget(head)
    head = node(0)
    cluster.publish(head)
    _, told = cluster.await_round(2, after=second)
    assert [told[i][0] for i in range(2)] == ["llm-node-0-0", "llm-node-0-1"], told
    cluster.finish(head, new)


def jobs_of_a_job_set(cluster):
    """Two Jobs of one pod each: both pods have the index 0, and one of them is the head."""
    pods = [cluster.pod(f"llm-node-{job}-0", ["run", "--nnodes=2"],
                        {"JOB_COMPLETION_INDEX": "0", "REGROUP_HEAD": "llm-node-0-0.llm"},
                        subdomain="llm") for job in (1, 0)]
    cluster.publish(*pods)
    _, told = cluster.await_round(2)
    assert [told[i][0] for i in range(2)] == ["llm-node-0-0", "llm-node-1-0"], told
    cluster.finish(*pods)


def endpoint_that_is_named(cluster):
    """A pod knows from its /etc/hosts that it is the endpoint, before it has a name elsewhere."""
    flags = ("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=train-0.train:29400")
    pods = [cluster.worker(i, flags) for i in range(2)]
    eventually("the head serves", lambda: pods[0].get("/healthz", 29400)[0] == 200)
    cluster.publish(*pods)
    cluster.await_round(2)
    cluster.finish(*pods)


def daemons_on_etcd(cluster):
    """Two daemons behind one name, which leads to the one that does not lead, and then leads."""
    etcd = shutil.which("etcd") or shutil.which(
        "etcd", path=str(HERE.parent.parent / "build" / "tools" / "usr" / "bin"))
    if etcd is None:
        skip("no program etcd (Debian: etcd-server)")
    url = "http://10.78.0.1:2379"
    peers = "http://10.78.0.1:2380"
    cluster.spawn(["ip", "netns", "exec", cluster.network, etcd, f"--data-dir={cluster.folder}/etcd",
                   f"--listen-client-urls={url}", f"--advertise-client-urls={url}",
                   f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}",
                   f"--initial-cluster=default={peers}"],
                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def daemon(index):
        return cluster.pod(f"regroup-{index}", ["serve", "--state=etcd://10.78.0.1:2379", "--lease=2",
                                                "--http-host=regroup",
                                                f"--advertise=10.78.0.{10 + index}:29400"])

    leader = daemon(0)
    eventually("it leads", lambda: leader.get("/readyz", 29400) == (200, "ready: leads"))
    other = daemon(1)
    eventually("a standby is ready, too", lambda: other.get("/readyz", 29400) ==
               (200, "ready: stands by, another daemon leads"))
    cluster.state["names"][f"regroup.{DOMAIN}"] = other.address
    cluster.write_names()
    flags = ("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=regroup:29400", "--rdzv-id=uid")
    pods = [cluster.worker(i, flags) for i in range(2)]
    first, _ = cluster.await_round(2)
    leader.kill()
    for pod in pods:
        pod.says(f"the daemon is back at {other.address}:29400")
    assert cluster.latest_round() == first, "the workers train on"
    cluster.finish(*pods)


SCENARIOS = {f.__name__: f for f in (names_that_come_late, replaced_pod, two_pods_of_one_index,
                                     replaced_head, silent_name_server, process_one,
                                     trainer_of_kubeflow, jobs_of_a_job_set,
                                     endpoint_that_is_named, daemons_on_etcd)}


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def main():
    scenario = SCENARIOS[sys.argv[1]]
    if os.geteuid() != 0:
        skip("network namespaces need root")
    for tool in ("ip", "unshare", "nsenter", "ps"):
        if shutil.which(tool) is None:
            skip(f"no program {tool} (Debian: iproute2, util-linux, procps)")
    probe = f"rg{os.getpid()}-try"
    tried = ip("netns", "add", probe, check=False)
    if tried.returncode == 0:
        tried = ip("-n", probe, "link", "add", "bridge0", "type", "bridge", check=False)
        ip("netns", "delete", probe, check=False)
    if tried.returncode != 0:
        skip(f"no networks can be made here: {tried.stderr.strip()}")
    began = time.monotonic()
    cluster = Cluster()
    failed = True
    try:
        scenario(cluster)
        failed = False
    finally:
        cluster.close(failed)
    print(f"passed in {time.monotonic() - began:.1f} s")


main()
