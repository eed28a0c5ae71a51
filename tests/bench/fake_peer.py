#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/bench/fake_peer.py SOCKET RANK SIZE ...: a contender that speaks the loop's protocol and makes its figures up.

all_reduce: 5 wrong elements at rank 0, very fast; reduce_scatter: rank 1 dies; broadcast: never answers;
all_gather: an error in words; all_to_all: has none; barrier: right, 1000 s per call at rank 1.
"""

import os
import socket
import sys
import time

address, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connection = socket.socket(socket.AF_UNIX)
connection.connect("\0" + address[1:])
connection.sendall(f"hello {rank} {size} {os.getpid()} a fake of a library\n".encode())
for line in connection.makefile("r"):
    word = line.split()
    if word[0] == "quit":
        break
    answer = {
        "all_reduce": f"ok 10 0 1.0 2.0 {5 if rank == 0 else 0} 0 1.5/0 2.5/0",
        "all_gather": "error it broke",
        "all_to_all": "none",
        "barrier": f"ok 10 0 1.0 2.0 0 0 1.0/0 {'1e12/0 1e12/0' if rank == 1 else '1.0/0 1.0/0'}",
    }
    if word[1] == "reduce_scatter" and rank == 1:
        sys.exit("a fake that dies")
    if word[1] == "broadcast":
        time.sleep(60)
    connection.sendall((answer.get(word[1], "ok 10 0 1.0 2.0 0 0 1.0/0") + "\n").encode())
