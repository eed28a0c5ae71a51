# SPDX-License-Identifier: Apache-2.0
# tests/hosts/rails.py: two links per host against one of them: large messages are striped; and one of the two is cut.
import os
import time

from lab import BUILD, Job, median, nethosts, perf, quick, report

GOAL = 1.8
SIZE = 16 << 20


def seconds(algo, per_host, devices):
    args = ['all_reduce', '-b', str(SIZE), '-e', str(SIZE), '-c', '1', '--inplace', '0', '-n', '4', '-w', '1', '--algo', algo]
    result, why = perf(2, per_host, args, {'GYRE_ORDER': 'fast', **({'UCX_NET_DEVICES': devices} if devices else {})})
    if not result:
        raise RuntimeError(why)
    row = result['results'][0]['out_of_place']
    if float(row['nwrong']) != 0:
        raise RuntimeError('%s wrong results' % row['nwrong'])
    return row['p50'] * 1e-6


def cut():
    """One link under data, while the bootstrap's lives: no rank is silent, only the kernel's account of the connection tells. Not
    before the heartbeat's time (5 s), the look at it (1 s) and the moment in which a death would be told instead (1.5 s)."""
    limit, slack = 8.0, 1.0
    job = Job([os.path.join(BUILD, 'tests/hosts/rank'), '--count', str(1 << 20)], 2, 1, {'GYRE_TIMEOUT': '60'})
    late = job.wait_for([0, 1], 'READY', 60)
    since = time.monotonic()
    nethosts('cut', '1.1', 'drop')
    late = late or job.wait_for([0, 1], 'ERROR', limit + slack + 60)
    if late:
        report.line(False, 'rails: one of two links cut', 'ranks %s said nothing' % late)
    else:
        found = [job.find(r, 'ERROR') for r in (0, 1)]
        last = max(f[1] for f in found) - since
        named = ['ucx link with rank %d' % (1 - r) in found[r][2] or 'ucx link with rank %d' % r in found[r][2] for r in (0, 1)]
        warned = any('has acknowledged nothing' in job.errors(r) for r in (0, 1))
        report.line(all(named) and warned and last <= limit + slack, 'rails: one of two links cut under data',
                    'both ranks after %.2f s (promised %.0f s; the deadline was 60 s)' % (last, limit))
        report.note(quick(found[0][2], 200))
    job.end()
    nethosts('heal', '1.1')


def main():
    outer = os.environ['NETHOSTS_PREFIX']
    os.environ['NETHOSTS_PREFIX'] = outer[:1] + 'r' + outer[2:]
    try:
        nethosts('up', 2, '--links', 2, '--ttl', 1800)
        for rate in ('100mbit', '1gbit'):
            nethosts('rate', 'all', rate)
            for per_host in (1, 2):
                for algo in ('ring', 'hierarchical'):
                    pairs = [(seconds(algo, per_host, 'eth0'), seconds(algo, per_host, '')) for _ in range(1 if rate == '100mbit' else 3)]
                    one, two = median([p[0] for p in pairs]), median([p[1] for p in pairs])
                    report.line(one / two >= GOAL, 'rails: 2 x %s, 2 hosts x %d, all_reduce of 16 MiB by %s' % (rate, per_host, algo),
                                '%.2f times as fast as over one: %.0f ms and %.0f ms' % (one / two, two * 1e3, one * 1e3))
        nethosts('rate', 'all', '100mbit')
        cut()
    finally:
        nethosts('down')
        os.environ['NETHOSTS_PREFIX'] = outer
