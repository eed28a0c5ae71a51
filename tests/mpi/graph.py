# SPDX-License-Identifier: Apache-2.0
"""tests/mpi/graph.py SIDE: prints the graph of a grid of SIDE x SIDE nodes in Scotch's format."""
import sys

side = int(sys.argv[1])
near = lambda i, j: [
    (i + a) * side + j + b
    for a, b in ((-1, 0), (0, -1), (0, 1), (1, 0))
    if 0 <= i + a < side and 0 <= j + b < side
]
lists = [near(i, j) for i in range(side) for j in range(side)]
print(f"0\n{len(lists)} {sum(map(len, lists))}\n0 000")
for nodes in lists:
    print(len(nodes), *nodes)
