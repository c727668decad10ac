# SPDX-License-Identifier: Apache-2.0
"""A Slurm cluster of three nodes on this machine, each in namespaces of its own.

The calling program runs again as the first process of a namespace of processes, so that the kernel
ends the cluster with it. For a look around:

    sudo python3 tests/slurm/cluster.py bash
"""
import os
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOOLS = os.environ.get("SLURM_FOLDER") or os.path.join(HERE, "..", "..", "build", "tools")
TOOLS = os.path.abspath(TOOLS)
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
NODES = ("n1", "n2", "n3")
ADDRESSES = {"n1": "10.78.0.1", "n2": "10.78.0.2", "n3": "10.78.0.3"}
DEADLINE_S = 60
INSIDE = "REGROUP_TEST_SLURM_INSIDE"

CONFIG = """
ClusterName=test
SlurmctldHost=login
SlurmUser=root
AuthInfo=socket=/run/munge/munge.socket
PluginDir={plugins}
ProctrackType={proctrack}
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdTimeout=5
KillWait=5
OverTimeLimit=0
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,requeue_delay=0
NodeName=n[1-3] CPUs=32 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP PriorityTier=1 GraceTime=0
PartitionName=graceful Nodes=ALL State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=ALL State=UP PriorityTier=10
"""


def find(name):
    """The path of a program of Slurm: Debian's alternatives have a suffix."""
    places = os.pathsep.join([os.environ["PATH"], "/usr/sbin", TOOLS + "/usr/bin",
                              TOOLS + "/usr/sbin"])
    return shutil.which(name + "-wlm", path=places) or shutil.which(name, path=places)


def missing():
    """Why this machine cannot have a cluster; None if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for name in ("unshare", "nsenter", "ip", "mount"):
        if not find(name):
            return "there is no " + name
    for name in ("munged", "slurmctld", "slurmd", "slurmstepd", "srun", "sbatch"):
        if not find(name):
            return "there is no " + name + "; `sh cmake/setup.sh test` unpacks it"
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "true"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, check=False)
    if tried.returncode != 0:
        return "namespaces cannot be made here: " + tried.stderr.decode().strip()
    return None


def enter():
    """Runs this program again in namespaces that end with it. Returns in that one only."""
    if os.environ.get(INSIDE) != "1":
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--net", "--uts", "--mount", "--pid", "--fork",
                              "--kill-child", "--mount-proc", sys.executable] + sys.argv)


def wait_for(what, check, limit_s=DEADLINE_S):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("waited in vain for " + what)


def write(path, text, mode=0o644):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


def processes_with(**variables):
    """Processes that have these variables in their environment."""
    wanted = {("%s=%s" % item).encode() for item in variables.items()}
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/" + name + "/environ", "rb") as file:
                if wanted <= set(file.read().split(b"\0")):
                    found.append(int(name))
        except OSError:
            pass  # It has ended.
    return found


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def run(*command, **more):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=DEADLINE_S, check=False, **more)
    if done.returncode != 0:
        raise AssertionError("%s: code %d: %s" % (" ".join(command), done.returncode,
                                                  done.stdout.decode(errors="replace")))
    return done.stdout.decode(errors="replace")


class Cluster:
    """munged, slurmctld and three slurmd, which end with the namespaces of enter()."""

    def __init__(self):
        self.folder = "/run/cluster"  # In memory, in a mount of our own: it ends with us, too.
        self.daemons = {}
        libraries = ":".join(base + LIBRARIES + more for base in (TOOLS, "")
                             for more in ("", "/slurm-wlm"))
        self.environment = {
            "PATH": os.pathsep.join([TOOLS + "/usr/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]),
            "LD_LIBRARY_PATH": libraries, "SLURM_CONF": self.folder + "/slurm.conf",
            "HOME": self.folder, "LANG": "C.UTF-8"}

    def start(self, proctrack="proctrack/linuxproc"):
        run("mount", "-t", "tmpfs", "tmpfs", "/run")
        os.mkdir(self.folder)
        self._make_network()
        plugins = next(path for path in (TOOLS + LIBRARIES + "/slurm-wlm",
                                         LIBRARIES + "/slurm-wlm") if os.path.isdir(path))
        write(self.folder + "/slurm.conf", CONFIG.format(folder=self.folder, plugins=plugins,
                                                         proctrack=proctrack))
        # Not used, but slurmd asks for a plug-in; that of version 2 wants systemd.
        write(self.folder + "/cgroup.conf", "CgroupPlugin=cgroup/v1\n")
        os.mkdir(self.folder + "/state")
        self._start_munged()
        self._start("slurmctld", find("slurmctld"), "-D", "-c")
        for node in NODES:
            self.start_node(node)
        wait_for("the first step",
                 lambda: self.command("srun", "--nodes=3", "true").returncode == 0)

    def start_node(self, node):
        """Boots a node: its disk is empty, its network is plugged, its slurmd starts."""
        spool = os.path.join(self.folder, "spool." + node)
        shutil.rmtree(spool, ignore_errors=True)
        os.mkdir(spool)
        run("ip", "-n", node, "link", "set", "eth0", "up")
        self._start(node, "nsenter", "--net=/run/netns/" + node, "unshare", "--uts", "--mount",
                    "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
                    'hostname "$0" && exec "$@"', node, find("slurmd"), "-D", "-N", node, "-d",
                    find("slurmstepd"))

    def lose_node(self, node):
        """Takes the power from a node: nobody hears of the end of its processes."""
        run("ip", "-n", node, "link", "set", "eth0", "down")
        daemon = self.daemons.pop(node)
        daemon.kill()
        daemon.wait()

    def command(self, *command, **more):
        """Runs one of Slurm's commands on the login node, to its end."""
        environment = dict(self.environment, **more.pop("env", {}))
        return subprocess.run(command, env=environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=DEADLINE_S, check=False, **more)

    def log(self, name):
        return read(os.path.join(self.folder, name + ".log"))

    def end(self):
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait()

    def _start(self, name, *command):
        with open(os.path.join(self.folder, name + ".log"), "ab") as log:
            self.daemons[name] = subprocess.Popen(
                command, env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log)

    def _start_munged(self):
        os.mkdir("/run/munge", 0o755)
        with open("/run/munge/key", "wb") as key:
            os.chmod("/run/munge/key", 0o600)
            key.write(os.urandom(128))
        self._start("munged", find("munged"), "--foreground", "--force",
                    "--key-file=/run/munge/key", "--socket=/run/munge/munge.socket", "--pid-file=/run/munge/pid",
                    "--log-file=" + self.folder + "/munged.log", "--seed-file=/run/munge/seed")
        wait_for("munged", lambda: os.path.exists("/run/munge/munge.socket"))

    def _make_network(self):
        """A switch, the login node on it, and a network namespace for each node."""
        write(self.folder + "/hosts", "127.0.0.1 localhost\n10.78.0.254 login\n" + "".join(
            "%s %s\n" % (ADDRESSES[node], node) for node in NODES))
        run("mount", "--bind", self.folder + "/hosts", "/etc/hosts")
        run("hostname", "login")
        for words in ("link set lo up", "link add switch type bridge", "link set switch up",
                      "addr add 10.78.0.254/24 dev switch"):
            run("ip", *words.split())
        for node in NODES:
            run("ip", "netns", "add", node)
            run("ip", "link", "add", node, "type", "veth", "peer", "name", "eth0", "netns", node)
            run("ip", "link", "set", node, "master", "switch", "up")
            run("ip", "-n", node, "addr", "add", ADDRESSES[node] + "/24", "dev", "eth0")
            run("ip", "-n", node, "link", "set", "lo", "up")


def main():
    reason = missing() if os.environ.get(INSIDE) != "1" else None
    if reason:
        print("no cluster: " + reason)
        return 77
    enter()
    cluster = Cluster()
    try:
        cluster.start(os.environ.get("PROCTRACK", "proctrack/linuxproc"))
        return subprocess.call(sys.argv[1:] or ["bash"], env=cluster.environment,
                               cwd=cluster.folder)
    finally:
        cluster.end()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
