# SPDX-License-Identifier: Apache-2.0
# tests/hosts/places.py: a bridge of containers on each host, or a link to its management controller, with one address; and ranks
# dealt out in turn to two hosts: a ring crosses between them once each way, by the hosts' counters.
from lab import nethosts, perf, report

RANKS, SIZE, FEW, MANY = 6, 6 << 20, 2, 12
# Bytes on the link for each byte of data: TCP's and Ethernet's headers, acknowledgements, and what is sent again.
OVERHEAD = 1.1


def sent(host):
    return int(nethosts('exec', host, '--', 'cat', '/sys/class/net/eth0/statistics/tx_bytes'))


def bytes_of(args, count):
    """What host 0 and host 1 send in a job of `count` calls."""
    before = sent(0), sent(1)
    result, why = perf(2, RANKS // 2, [*args, '-b', str(SIZE), '-e', str(SIZE), '-n', str(count), '-w', '1', '-c', '0', '--inplace', '0'],
                       {'GYRE_ALGO': 'ring', 'UCX_NET_DEVICES': 'eth0'}, deal=True)
    if not result:
        raise RuntimeError(why)
    return sent(0) - before[0], sent(1) - before[1]


def bridges():
    """As Docker makes it: the same address on each host, and a container's cable as its only port."""
    make = ('ip link add docker0 type bridge; ip link add inside type veth peer name port; ip link set port master docker0; '
            'ip addr add 172.17.0.1/16 dev docker0; ip link set inside up; ip link set port up; ip link set docker0 up; '
            'until grep -q up /sys/class/net/docker0/operstate; do sleep 0.02; done')
    nethosts('all', '--', 'sh', '-ec', make)
    try:
        result, why = perf(2, 1, ['all_reduce', '-b', '8', '-e', '1M', '-f', '128', '-n', '5', '-w', '1', '-c', '1'], {})
        report.line(bool(result), 'places: hosts with a bridge of containers', 'all_reduce' if result else why[:200])
    finally:
        nethosts('all', '--', 'sh', '-c', 'ip link del inside; ip link del docker0')


def controllers():
    """As servers have one to their management controller: the same link-local address on each host."""
    nethosts('all', '--', 'sh', '-ec', 'ip link add bmc0 type veth peer name bmc1; ip addr add 169.254.3.1/24 dev bmc0; '
             'ip link set bmc0 up; ip link set bmc1 up')
    try:
        result, why = perf(2, 1, ['all_reduce', '-b', '8', '-e', '1M', '-f', '128', '-n', '5', '-w', '1', '-c', '1'], {})
        report.line(bool(result), 'places: hosts with a link to their management controller', 'all_reduce' if result else why[:200])
    finally:
        nethosts('all', '--', 'ip', 'link', 'del', 'bmc0')


def main():
    nethosts('rate', 'all', 'none')
    bridges()
    controllers()
    for name, args, least in (('all_gather', ['all_gather'], 1), ('broadcast', ['broadcast'], 1),
                              ('all_reduce in any order', ['all_reduce', '--order', 'fast'], 2)):
        few, many = bytes_of(args, FEW), bytes_of(args, MANY)
        each = [(m - f) / (MANY - FEW) for f, m in zip(few, many)]
        # all but one of the blocks go each way; the blocks of an all_reduce do so twice; a broadcast's chain crosses one way
        want = least * SIZE * (RANKS - 1) / RANKS if name != 'broadcast' else SIZE
        report.line(max(each) <= OVERHEAD * want, 'places: %s of %d MiB by ring, ranks 0 2 4 and 1 3 5' % (name, SIZE >> 20),
                    '%.2f and %.2f MiB sent by the two hosts for each call; by rank: %.2f' %
                    (each[0] / 2**20, each[1] / 2**20, want * RANKS / 2 / 2**20))
