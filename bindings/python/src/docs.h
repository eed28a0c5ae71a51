/* SPDX-License-Identifier: Apache-2.0 */
/* docs.h: the docstrings of the collectives. tests/bindings/python_docs.py runs their examples, on 1 to 3
 * ranks; `comm` there is the job's communicator. */
#ifndef GYRE_PYTHON_DOCS_H
#define GYRE_PYTHON_DOCS_H

#define DOC_ALL_REDUCE                                                                             \
    "recv of every rank = the reduction over the ranks of send. recv None: in place, in send.\n\n" \
    ">>> x = numpy.full(4, comm.rank + 1.0)\n"                                                     \
    ">>> total = numpy.empty(4)\n"                                                                 \
    ">>> comm.all_reduce(x, total)\n"                                                              \
    ">>> bool((total == comm.size * (comm.size + 1) / 2).all())\n"                                 \
    "True\n"                                                                                       \
    ">>> comm.all_reduce(x, op=gyre.MAX)\n"                                                        \
    ">>> bool(x[0] == comm.size)\n"                                                                \
    "True\n\n"                                                                                     \
    "scale: a factor for this rank's input of a sum. type: one of gyre.Type, as which the\n"       \
    "bytes of the arrays are taken. With leaves (Comm.set), send has that many vectors."
#define DOC_REDUCE_SCATTER                                                                           \
    "recv = block `rank` of the reduction of send, which has a block for each rank. recv None: in\n" \
    "place, in the own block of send.\n\n"                                                           \
    ">>> x = numpy.arange(2.0 * comm.size)\n"                                                        \
    ">>> mine = numpy.empty(2)\n"                                                                    \
    ">>> comm.reduce_scatter(x, mine)\n"                                                             \
    ">>> bool(mine[0] == comm.size * 2 * comm.rank)\n"                                               \
    "True"
#define DOC_REDUCE_SCATTERV                                                             \
    "reduce_scatter with blocks of counts[r] elements, the same list on all ranks.\n\n" \
    ">>> counts = list(range(1, comm.size + 1))\n"                                      \
    ">>> mine = numpy.empty(comm.rank + 1)\n"                                           \
    ">>> comm.reduce_scatterv(numpy.ones(sum(counts)), mine, counts)\n"                 \
    ">>> bool((mine == comm.size).all())\n"                                             \
    "True"
#define DOC_REDUCE                                                                                      \
    "recv of `root` = the reduction over the ranks of send. Other ranks' recv is not used. recv None\n" \
    "at root: in place.\n\n"                                                                            \
    ">>> x = numpy.array([comm.rank])\n"                                                                \
    ">>> comm.reduce(x, root=0)\n"                                                                      \
    ">>> comm.rank > 0 or int(x[0]) == sum(range(comm.size))\n"                                         \
    "True"
#define DOC_SCAN                                                                         \
    "recv of rank r = the reduction over ranks 0 to r of send. recv None: in place.\n\n" \
    ">>> x = numpy.ones(3)\n"                                                            \
    ">>> comm.scan(x)\n"                                                                 \
    ">>> bool(x[0] == comm.rank + 1)\n"                                                  \
    "True"
#define DOC_EXSCAN                                                                                     \
    "recv of rank r = the reduction over ranks 0 to r - 1 of send; that of rank 0 is not touched.\n\n" \
    ">>> first = numpy.zeros(1, 'q')\n"                                                                \
    ">>> comm.exscan(numpy.array([10], 'q'), first)\n"                                                 \
    ">>> int(first[0]) == 10 * comm.rank\n"                                                            \
    "True"
#define DOC_BROADCAST                              \
    "buffer of every rank = buffer of `root`.\n\n" \
    ">>> x = numpy.full(3, float(comm.rank))\n"    \
    ">>> comm.broadcast(x, root=comm.size - 1)\n"  \
    ">>> bool(x[2] == comm.size - 1)\n"            \
    "True"
#define DOC_ALL_GATHER                                                                                    \
    "recv of every rank = the blocks send of all ranks. send None: in place, this rank's block lies in\n" \
    "recv already.\n\n"                                                                                   \
    ">>> ranks = numpy.empty(comm.size, 'i')\n"                                                           \
    ">>> comm.all_gather(numpy.array([comm.rank], 'i'), ranks)\n"                                         \
    ">>> ranks.tolist() == list(range(comm.size))\n"                                                      \
    "True"
#define DOC_ALL_GATHERV                                                                                    \
    "all_gather with blocks of counts[r] elements, at displs[r] of recv, or back to back. The lists are\n" \
    "the same on all ranks.\n\n"                                                                           \
    ">>> counts = list(range(1, comm.size + 1))\n"                                                         \
    ">>> out = numpy.empty(sum(counts), 'i')\n"                                                            \
    ">>> comm.all_gatherv(numpy.full(comm.rank + 1, comm.rank, 'i'), out, counts)\n"                       \
    ">>> int(out[-1]) == comm.size - 1\n"                                                                  \
    "True"
#define DOC_GATHER                                                                                          \
    "recv of `root` = the blocks send of all ranks. send None at root: its block lies in recv already.\n\n" \
    ">>> out = numpy.empty(comm.size, 'i') if comm.rank == 0 else None\n"                                   \
    ">>> comm.gather(numpy.array([comm.rank], 'i'), out)\n"                                                 \
    ">>> comm.rank > 0 or out.tolist() == list(range(comm.size))\n"                                         \
    "True"
#define DOC_GATHERV                                                                                \
    "gather with blocks of counts[r] elements, at displs[r] of recv; both lists at root only.\n\n" \
    ">>> counts = list(range(1, comm.size + 1))\n"                                                 \
    ">>> out = numpy.empty(sum(counts), 'i')\n"                                                    \
    ">>> comm.gatherv(numpy.full(comm.rank + 1, comm.rank, 'i'), out, counts)\n"                   \
    ">>> comm.rank > 0 or int(out[-1]) == comm.size - 1\n"                                         \
    "True"
#define DOC_SCATTER                                                                                     \
    "recv of every rank = its block of send of `root`; send of other ranks is not used. recv None at\n" \
    "root: its block stays in send.\n\n"                                                                \
    ">>> blocks = numpy.arange(comm.size) if comm.rank == 0 else None\n"                                \
    ">>> mine = numpy.empty(1, 'l')\n"                                                                  \
    ">>> comm.scatter(blocks, mine)\n"                                                                  \
    ">>> int(mine[0]) == comm.rank\n"                                                                   \
    "True"
#define DOC_SCATTERV                                                                                \
    "scatter with blocks of counts[r] elements, at displs[r] of send; both lists at root only.\n\n" \
    ">>> counts = list(range(1, comm.size + 1))\n"                                                  \
    ">>> mine = numpy.empty(comm.rank + 1)\n"                                                       \
    ">>> comm.scatterv(numpy.full(sum(counts), 7.0), mine, counts)\n"                               \
    ">>> bool((mine == 7).all())\n"                                                                 \
    "True"
#define DOC_ALL_TO_ALL                                                                 \
    "Block p of send goes to block `rank` of recv of rank p. recv None: in place.\n\n" \
    ">>> x = numpy.full(comm.size, comm.rank, 'i')\n"                                  \
    ">>> comm.all_to_all(x)\n"                                                         \
    ">>> x.tolist() == list(range(comm.size))\n"                                       \
    "True"
#define DOC_ALL_TO_ALLV                                                              \
    "all_to_all with blocks of the sizes and places that the lists give.\n\n"        \
    ">>> ones = [1] * comm.size\n"                                                   \
    ">>> out = numpy.empty(comm.size, 'i')\n"                                        \
    ">>> comm.all_to_allv(numpy.full(comm.size, comm.rank, 'i'), ones, out, ones)\n" \
    ">>> out.tolist() == list(range(comm.size))\n"                                   \
    "True"
#define DOC_BARRIER                                        \
    "No rank returns before all ranks have called it.\n\n" \
    ">>> comm.barrier()"
#define DOC_SEND                                                                                          \
    "Sends buffer to rank `peer`, which calls recv with as many elements of the same type. It may wait\n" \
    "for that call: ranks that send to each other use isend.\n\n"                                         \
    ">>> right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size\n"                        \
    ">>> token = numpy.zeros(1, 'i')\n"                                                                   \
    ">>> requests = [comm.isend(numpy.array([comm.rank], 'i'), right), comm.irecv(token, left)]\n"        \
    ">>> gyre.wait_all(requests)\n"                                                                       \
    ">>> int(token[0]) == left\n"                                                                         \
    "True"
#define DOC_RECV "Receives what rank `peer` sends into buffer. See send."
#define DOC_NEIGHBOR_EXCHANGE                                                                              \
    "Block i of send goes to rank to[i]; block i of recv comes from rank sources[i]. Without counts the\n" \
    "arrays have equal blocks. It is matched like the messages of send and recv.\n\n"                      \
    ">>> right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size\n"                         \
    ">>> halo = numpy.empty(1)\n"                                                                          \
    ">>> comm.neighbor_exchange(numpy.array([comm.rank + 0.5]), [right], halo, [left])\n"                  \
    ">>> float(halo[0]) == left + 0.5\n"                                                                   \
    "True"

#endif
