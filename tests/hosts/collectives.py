# SPDX-License-Identifier: Apache-2.0
# tests/hosts/collectives.py: every collective is right over 4 hosts of 2 ranks, by each algorithm that serves it.
import os
import sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../support'))
import algorithms # noqa: E402
from lab import LONG, bin_path, nethosts, on_host, perf, report
import subprocess

HOSTS, PER_HOST = 4, 2
ALL = ['all_reduce', 'reduce_scatter', 'all_gather', 'broadcast', 'reduce', 'gather', 'scatter', 'all_to_all',
       'reduce_scatterv', 'all_gatherv', 'gatherv', 'scatterv', 'all_to_allv', 'barrier', 'sendrecv',
       'neighbor_exchange']
FORCED = [name for name, operations, traits in algorithms.rows() if 'all_reduce' in operations and 'COLL_REACHES' not in traits]


def right(name, args, env=None):
    result, why = perf(HOSTS, PER_HOST, args, env)
    if not result:
        return report.line(False, name, why)
    rows = [row[half] for row in result['results'] for half in ('out_of_place', 'in_place') if row[half]]
    wrong = sum(max(0, int(float(row['nwrong']))) for row in rows if row['nwrong'] not in (None, 'N/A'))
    sizes = [row['size'] for row in result['results']]
    report.line(wrong == 0 and result['out_of_bounds']['count'] == 0, name, '%d wrong in %d results of %d to %d bytes' %
                (wrong, len(rows), min(sizes), max(sizes)))


def main():
    nethosts('rate', 'all', 'none')
    sizes = ['-b', '64', '-e', '16M' if LONG else '2M', '-f', '4' if LONG else '32', '-n', '2', '-w', '1', '-c', '1']
    for name in ALL:
        right('right: %s' % name, [name, *sizes], {'GYRE_CHUNK': '65536'})
    for algo in FORCED:
        right('right: all_reduce by %s' % algo, ['all_reduce', *sizes, '--algo', algo])
    right('right: all_reduce in any order', ['all_reduce', *sizes, '--order', 'fast'])
    launched(sizes)


def launched(sizes):
    """The same started by ucx-run through ssh, as people do."""
    nethosts('sshd')
    where = ','.join('%s:%d' % (nethosts('name', h), PER_HOST) for h in range(HOSTS))
    done = on_host(0, [bin_path('ucx-run'), '-H', where, '--timeout', '60', bin_path('gyre-perf'), 'all_reduce', *sizes],
                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = done.communicate()[0]
    hosts = sum('on ' in l and l.startswith('#  Rank') for l in text.split('\n'))
    report.line(done.returncode == 0 and hosts == HOSTS * PER_HOST and 'Out of bounds values : 0 OK' in text,
                'right: all_reduce started by ucx-run over ssh', 'code %d, %d ranks' % (done.returncode, hosts))
