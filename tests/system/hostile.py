# SPDX-License-Identifier: Apache-2.0
"""tests/system/hostile.py LAUNCHER: while the job of that ucx-run lives, sends nonsense to everything that its ranks
listen on: TCP ports (the bootstrap's, UCX's) and abstract Unix sockets. Prints how much; used by hostile.sh."""
import glob
import os
import random
import socket
import struct
import sys
import time

launcher = int(sys.argv[1])
rnd = random.Random(1)
MESSAGES = [
    b"",
    b"GET / HTTP/1.1\r\nHost: gyre\r\n\r\n",
    b"GYREBT2\n" + rnd.randbytes(56),
    b"GYREBT9\n" + rnd.randbytes(56),
    rnd.randbytes(32),
    b"\0" * 40,
    rnd.randbytes(70000),
]


def children():
    found = []
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            fields = open(stat).read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == launcher:
            found.append(stat.split("/")[2])
    return found


def inodes(pids):
    found = set()
    for pid in pids:
        for fd in glob.glob(f"/proc/{pid}/fd/*"):
            try:
                target = os.readlink(fd)
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def targets():
    mine = inodes(children())
    found = []
    for line in open("/proc/net/tcp").readlines()[1:]:
        w = line.split()
        if w[3] == "0A" and w[9] in mine:
            host, port = w[1].split(":")
            host = socket.inet_ntoa(struct.pack("<I", int(host, 16)))
            found.append((socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1" if host == "0.0.0.0" else host, int(port, 16))))
    for line in open("/proc/net/unix").readlines()[1:]:
        w = line.split()
        if len(w) == 8 and w[7].startswith("@gyre-") and w[6] in mine and w[5] == "01":
            found.append((socket.AF_UNIX, socket.SOCK_SEQPACKET, "\0" + w[7][1:]))
    return found


kept, sent, seen = [], 0, {socket.AF_INET: set(), socket.AF_UNIX: set()}
while os.path.exists(f"/proc/{launcher}"):
    for family, kind, address in targets():
        seen[family].add(address)
        for message in MESSAGES:
            s = socket.socket(family, kind)
            s.settimeout(0.05)
            try:
                s.connect(address)
                if message:
                    s.sendall(message[:2000] if family == socket.AF_UNIX else message)
                sent += 1
            except OSError:
                pass
            kept.append(s)  # some stay half open for a while
    while len(kept) > 300:
        kept.pop(0).close()
    time.sleep(0.1)
print(f"{sent} messages to {len(seen[socket.AF_INET])} ports and {len(seen[socket.AF_UNIX])} sockets")
sys.exit(0 if sent > 0 and seen[socket.AF_INET] and seen[socket.AF_UNIX] else 1)
