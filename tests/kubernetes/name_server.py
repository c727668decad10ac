# SPDX-License-Identifier: Apache-2.0
"""A name server for tests: it reads its names again for each question.

    name_server.py ADDRESS FILE

FILE holds JSON: {"names": {"train-0.train.default.svc.cluster.local": "10.78.0.10"}}. A name that is
not there does not exist. With "silent": true no question is answered.
"""
import json
import socket
import struct
import sys

TYPE_A = 1
NO_SUCH_NAME = 3


def question(packet):
    """The name, its type, and the end of the question."""
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1:at + 1 + packet[at]].decode().lower())
        at += 1 + packet[at]
    return ".".join(labels), struct.unpack("!H", packet[at + 1:at + 3])[0], at + 5


def answer(packet, names):
    name, kind, end = question(packet)
    address = names.get(name)
    found = address is not None and kind == TYPE_A
    code = 0 if address is not None else NO_SUCH_NAME
    head = packet[:2] + struct.pack("!HHHHH", 0x8580 | code, 1, int(found), 0, 0)
    record = struct.pack("!HHHIH", 0xC00C, TYPE_A, 1, 5, 4) + socket.inet_aton(address) \
        if found else b""
    return head + packet[12:end] + record


def main():
    address, file = sys.argv[1:]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        print("listens", flush=True)
        while True:
            packet, client = server.recvfrom(512)
            with open(file, encoding="utf-8") as stream:
                state = json.load(stream)
            if not state.get("silent"):
                server.sendto(answer(packet, state["names"]), client)


main()
