# SPDX-License-Identifier: Apache-2.0
"""Counts the traffic of a rendezvous of torchrun's c10d back end for each of N nodes, and prints it:

    c10d_traffic.py N

Messages are requests to the store and its answers. Bytes are their keys and values, without the
framing of the store. Each node is a real handler with its own connection and thread.
"""
import os
import sys
import threading
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler

LIMIT = timedelta(seconds=60)


class CountingStore:
    lock = threading.Lock()
    messages = 0
    bytes = 0

    def __init__(self, port):
        self.store = dist.TCPStore("127.0.0.1", port, None, False, LIMIT, wait_for_workers=False)

    def count(self, *texts):
        with CountingStore.lock:
            CountingStore.messages += 2
            CountingStore.bytes += sum(len(text) for text in texts)

    def get(self, key):
        value = self.store.get(key)
        self.count(key, value)
        return value

    def compare_set(self, key, expected, desired):
        value = self.store.compare_set(key, expected, desired)
        self.count(key, expected, desired, value)
        return value


def main():
    nodes = int(sys.argv[1])
    server = dist.TCPStore("127.0.0.1", 0, None, True, LIMIT, wait_for_workers=False)
    handlers = []
    for _ in range(nodes):
        counting = CountingStore(server.port)
        backend = C10dRendezvousBackend(counting, "bench")
        handlers.append(
            DynamicRendezvousHandler.from_backend("bench", counting.store, backend, nodes, nodes))
    threads = [threading.Thread(target=handler.next_rendezvous) for handler in handlers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with CountingStore.lock:
        print(CountingStore.messages / nodes, CountingStore.bytes / nodes, flush=True)
        os._exit(0)  # Otherwise the heartbeats of the handlers would go on.


main()
