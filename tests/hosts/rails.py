# tests/hosts/rails.py: two links per host against one of them: large messages are striped.
import os

from lab import median, nethosts, perf, report

GOAL = 1.8
SIZE = 16 << 20


def seconds(algo, per_host, devices):
    args = ['all_reduce', '-b', str(SIZE), '-e', str(SIZE), '-c', '1', '--inplace', '0', '-n', '2', '-w', '1', '--algo', algo]
    result, why = perf(2, per_host, args, {'GYRE_ORDER': 'fast', **({'UCX_NET_DEVICES': devices} if devices else {})})
    if not result:
        raise RuntimeError(why)
    row = result['results'][0]['out_of_place']
    if float(row['nwrong']) != 0:
        raise RuntimeError('%s wrong results' % row['nwrong'])
    return row['p50'] * 1e-6


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
    finally:
        nethosts('down')
        os.environ['NETHOSTS_PREFIX'] = outer
