# SPDX-License-Identifier: Apache-2.0
"""Calls every function of the store client of this PyTorch release, and prints the results.

    store_program.py PORT        as a client of the server on that port of this host
    store_program.py --serve     as PyTorch's own server, until its input ends; prints its port
    store_program.py --serve for good    the same, until it is killed
"""
import datetime
import re
import signal
import sys
import threading

from torch.distributed import PrefixStore, TCPStore

HOST = "127.0.0.1"
BINARY = bytes(range(256))


def seconds(number):
    return datetime.timedelta(seconds=number)


class Program:
    def __init__(self, port):
        self.port = port
        self.section = ""
        self.store = self.connect()

    def connect(self, timeout=60):
        return TCPStore(HOST, self.port, is_master=False, wait_for_workers=False,
                        timeout=seconds(timeout))

    def say(self, name, value):
        text = repr(value)
        if len(text) > 200:
            text = f"{text[:60]}... ({len(text)} characters)"
        print(f"{self.section}.{name} = {text}", flush=True)

    def show(self, name, call, *args, **kwargs):
        """Prints the result of a call, or the type and first line of its exception."""
        try:
            self.say(name, call(*args, **kwargs))
        except Exception as error:
            text = str(error).splitlines()[0] if str(error) else ""
            text = re.sub(r"\b\d{4,5}\b(?=[\]:, ]|$)", "PORT", text)
            text = re.sub(r"SocketImpl\(fd=\d+.*?\)", "SOCKET", text)
            self.say(name, f"{type(error).__name__}: {text}")

    def has(self, method):
        return hasattr(self.store, method)

    def run(self):
        for section in [self.basics, self.numbers, self.values, self.swaps, self.waits, self.keys,
                        self.prefixes, self.lists, self.queues, self.barriers, self.clones,
                        self.limits, self.others_wait]:
            self.section = section.__name__
            section()

    def basics(self):
        s = self.store
        self.show("set", s.set, "a", "1")
        self.show("get", s.get, "a")
        self.show("set_again", s.set, "a", "2")
        self.show("get_again", s.get, "a")
        self.show("empty_key", s.set, "", "nothing")
        self.show("get_empty_key", s.get, "")
        self.show("slash", s.set, "/a", "of another key")
        self.show("get_slash", s.get, "/a")
        self.show("unicode", s.set, "sch\u00fcssel", "w\u00f6rter")
        self.show("get_unicode", s.get, "sch\u00fcssel")
        self.show("host", lambda: s.host)

    def numbers(self):
        s = self.store
        self.show("add", s.add, "n", 5)
        self.show("add_negative", s.add, "n", -7)
        self.show("add_zero", s.add, "n", 0)
        self.show("get", s.get, "n")
        self.show("large", s.add, "large", 2**62)
        self.show("get_large", s.get, "large")
        self.show("smallest", s.add, "small", -(2**63))
        self.show("get_smallest", s.get, "small")
        s.set("text", "41 and more")
        self.show("add_to_text", s.add, "text", 1)
        s.set("signed", " +7")
        self.show("add_to_signed", s.add, "signed", 1)
        s.set("apples", "apples")
        s.get("apples")  # Reads on the connection that has set the value, so that it is there.
        self.show("add_to_no_number", self.fails, lambda c: c.add("apples", 1))
        s.set("empty", "")
        s.get("empty")
        self.show("add_to_empty", self.fails, lambda c: c.add("empty", 1))
        self.show("alive", s.get, "n")

    def fails(self, call):
        """Whether a call fails on a new connection. The kind of error depends on timing."""
        client = self.connect(timeout=5)
        try:
            return f"returned {call(client)!r}"
        except Exception as error:
            return f"{type(error).__name__}"

    def values(self):
        s = self.store
        self.show("empty", s.set, "v", "")
        self.show("get_empty", s.get, "v")
        self.show("binary", s.set, "v", "bin\0ary\x7f")
        self.show("get_binary", s.get, "v")
        million = "m" * (1 << 20)
        self.show("million", s.set, "million", million)
        self.say("get_million", s.get("million") == million.encode())
        try:
            s.set("bytes", BINARY)
            self.say("get_bytes", s.get("bytes") == BINARY)
        except TypeError:
            self.say("get_bytes", "this release takes text alone")

    def swaps(self):
        s = self.store
        self.show("create", s.compare_set, "c", "", "first")
        self.show("refused", s.compare_set, "c", "wrong", "second")
        self.show("swapped", s.compare_set, "c", "first", "second")
        self.show("get", s.get, "c")
        self.show("absent", s.compare_set, "c_absent", "expected", "desired")
        if self.has("check"):
            self.show("absent_is_absent", s.check, ["c_absent"])
        self.show("to_empty", s.compare_set, "c", "second", "")
        self.show("from_empty", s.compare_set, "c", "", "third")

    def waits(self):
        s = self.connect()
        s.set("w", "1")
        self.show("there", s.wait, ["w"])
        self.show("none", s.wait, [])
        self.show("twice", s.wait, ["w", "w"], seconds(5))
        # It stays connected: of a client that has gone, the server may not learn the user any more.
        setter = self.connect()
        late = threading.Timer(0.3, lambda: setter.set("w_late", "now"))
        late.start()
        self.show("late", s.get, "w_late")
        late.join()
        timed = self.connect()
        self.show("timeout", timed.wait, ["w_never", "w"], seconds(1))
        if self.has("check"):
            # PyTorch 1.13 does not recover from a timeout: it takes the late answer for the next
            # one.
            self.show("after_timeout", timed.get, "w")
            timed.set_timeout(seconds(1))
            self.show("get_timeout", timed.get, "w_never")
            self.show("after_get_timeout", timed.get, "w")
            self.show("timeout_value", lambda: timed.timeout)

    def keys(self):
        s = self.store
        before = s.num_keys()
        s.set("k1", "1")
        s.set("k2", "2")
        self.say("two_more", s.num_keys() - before)
        self.show("delete", s.delete_key, "k1")
        self.show("delete_again", s.delete_key, "k1")
        self.show("delete_never", s.delete_key, "k_never")
        self.say("one_more", s.num_keys() - before)
        if self.has("check"):
            self.show("check", s.check, ["k2"])
            self.show("check_absent", s.check, ["k2", "k1"])
            self.show("check_none", s.check, [])

    def prefixes(self):
        p = PrefixStore("p", self.store)
        inner = PrefixStore("q", p)
        self.show("set", p.set, "k", "of p")
        self.show("inner_set", inner.set, "k", "of q")
        self.show("get", p.get, "k")
        self.show("inner_get", inner.get, "k")
        self.show("below", self.store.get, "p/q/k")
        self.show("add", inner.add, "n", 3)
        self.show("delete", p.delete_key, "k")
        self.say("num_keys", p.num_keys() == self.store.num_keys())
        if hasattr(p, "compare_set") and self.has("check"):
            self.show("compare_set", p.compare_set, "c", "", "new")
            self.show("check", p.check, ["c"])

    def lists(self):
        s = self.store
        if not self.has("multi_get"):
            return
        self.show("multi_set", s.multi_set, ["l1", "l2", "l3"], ["1", "", "3"])
        self.show("multi_get", s.multi_get, ["l3", "l1", "l2", "l1"])
        self.show("multi_set_none", s.multi_set, [], [])
        self.show("multi_get_none", s.multi_get, [])
        self.show("append", s.append, "l1", "0")
        self.show("append_new", s.append, "l4", "new")
        self.show("get_appended", s.multi_get, ["l1", "l4"])
        timed = self.connect(timeout=1)
        self.show("multi_get_timeout", timed.multi_get, ["l1", "l_never"])
        self.show("extended", s.has_extended_api)
        if self.has("list_keys"):
            own = self.connect()
            keys = sorted(key for key in own.list_keys() if re.match(r"l\d|p/", key))
            self.say("list_keys", keys)

    def queues(self):
        s = self.store
        if not self.has("queue_push"):
            return
        self.show("push", s.queue_push, "q", "one")
        self.show("push_again", s.queue_push, "q", "two")
        self.show("len", s.queue_len, "q")
        before = s.num_keys()
        self.show("pop", s.queue_pop, "q")
        self.show("pop_again", s.queue_pop, "q", False)
        self.show("pop_none", s.queue_pop, "q", False)
        self.show("len_none", s.queue_len, "q")
        self.say("num_keys_unchanged", s.num_keys() == before)
        late = threading.Timer(0.3, lambda: self.connect().queue_push("q_late", "now"))
        late.start()
        self.show("pop_late", s.queue_pop, "q_late")
        late.join()
        s.queue_push("q2", "item")
        self.show("check", s.check, ["q2"])
        self.show("wait", s.wait, ["q2"], seconds(1))
        timed = self.connect(timeout=1)
        self.show("pop_timeout", timed.queue_pop, "q_never")
        # Waits for a queue with items and for a key.
        setter = self.connect()
        other = threading.Timer(0.3, lambda: setter.set("q_key", "now"))
        other.start()
        self.show("wait_mixed", self.connect().wait, ["q2", "q_key"], seconds(3))
        other.join()

    def barriers(self):
        if not self.has("barrier"):
            return
        s = self.store
        self.show("alone", s.barrier, "b", 1)
        other = threading.Thread(target=lambda: self.connect().barrier("b2", 2))
        other.start()
        self.show("two", s.barrier, "b2", 2)
        other.join()
        self.show("counted", s.get, "b2")
        self.show("later", s.barrier, "b2", 2)
        self.show("timeout", self.connect().barrier, "b3", 2, seconds(1))

    def clones(self):
        if not self.has("clone"):
            return
        clone = self.store.clone()
        clone.set("of_clone", "c")
        self.show("get", self.store.get, "of_clone")
        self.show("type", lambda: type(clone).__name__)

    def limits(self):
        self.show("key_8191", self.fails, lambda c: (c.set("k" * 8191, "v"), c.get("k" * 8191))[1])
        self.show("key_9000", self.fails, lambda c: (c.set("k" * 9000, "v"), c.get("k" * 9000))[1])
        value = "v" * (8 << 20)
        self.show("value_8M", self.fails, lambda c: (c.set("v8", value), len(c.get("v8")))[1])
        self.show("value_9M", self.fails, lambda c: (c.set("v9", value + "v" * (1 << 20)),
                                                     len(c.get("v9")))[1])
        self.show("overflow", self.fails, lambda c: (c.add("o", 2**63 - 1), c.add("o", 1))[1])

    def others_wait(self):
        """Effects of one client's calls on another client that waits."""
        for name, call in [
                ("set", lambda c, k: c.set(k, "v")),
                ("add", lambda c, k: c.add(k, 1)),
                ("compare_set", lambda c, k: c.compare_set(k, "", "v")),
                ("compare_set_refused", lambda c, k: c.compare_set(k, "other", "v")),
                ("append", lambda c, k: c.append(k, "v")),
                ("multi_set", lambda c, k: c.multi_set([k], ["v"])),
                ("queue_push", lambda c, k: c.queue_push(k, "v"))]:
            if name in ("append", "multi_set", "queue_push") and not self.has(name):
                continue
            key = f"x_{name}"
            # It stays connected: regroup may refuse a client that writes and leaves at once.
            other = self.connect()
            actor = threading.Timer(0.3, call, [other, key])
            actor.start()
            # All but one must end before the time-out.
            patience = seconds(2 if name == "compare_set_refused" else 10)
            self.show(name, self.connect().wait, [key], patience)
            actor.join()


def serve():
    server = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    print("port", server.port, flush=True)
    if sys.argv[2:]:
        signal.pause()
    sys.stdin.read()


if sys.argv[1] == "--serve":
    serve()
else:
    Program(int(sys.argv[1])).run()
