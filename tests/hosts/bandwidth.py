# SPDX-License-Identifier: Apache-2.0
# tests/hosts/bandwidth.py: how much of a link's bandwidth collectives get.
#
# The yardstick is iperf3 in the same run: on all hosts at once, each sends to the next, as a ring does. What a link allows an
# algorithm is the time that the busiest link needs for the bytes which the algorithm's schedule sends over it, at that rate;
# gyre-plan counts them. For ring that is bus bandwidth / iperf3's; a tree sends more over its busiest link than a ring
# does and cannot reach a ring's bus bandwidth on links that carry both directions at once. The simulator's time stands beside.
import json
import os
import subprocess
import tempfile

from lab import LONG, bin_path, load, median, nethosts, on_host, perf, report

SIZE = 16 << 20
GOAL = 0.95
ALGORITHMS = ['ring', 'tree', 'hierarchical', 'auto']


def wait_for_listener(host):
    for _ in range(500):
        if on_host(host, ['grep', '-Eqi', ':14B5 [0:]+ 0A ', '/proc/net/tcp', '/proc/net/tcp6']).wait() == 0: # 5301, LISTEN
            return
    raise RuntimeError('iperf3 does not listen on host %d' % host)


def iperf(hosts, seconds):
    """Payload bytes per second, the median over hosts, of a flow from each to the next."""
    servers = [on_host(h, ['iperf3', '-s', '-1', '-p', '5301'], stdout=subprocess.DEVNULL) for h in range(hosts)]
    rates = []
    try:
        for h in range(hosts):
            wait_for_listener(h)
        clients = [on_host(h, ['iperf3', '-c', nethosts('ip', (h + 1) % hosts), '-p', '5301', '-t', str(seconds), '-O', '1', '-J'],
                           stdout=subprocess.PIPE, text=True) for h in range(hosts)]
        for client in clients:
            rates.append(json.loads(client.communicate(timeout=seconds + 30)[0])['end']['sum_received']['bits_per_second'] / 8)
    finally:
        for server in servers:
            server.kill()
            server.wait()
    return median(rates)


def plan(hosts, per_host, rate, algo, chunk, latency_ns=25000):
    """The schedule's time by the simulator, and that of the busiest link alone, in seconds."""
    folder = tempfile.mkdtemp(dir=os.environ['CHECK_HOSTS_TMP'])
    network, out = os.path.join(folder, 'network.json'), os.path.join(folder, 'plan.json')
    with open(network, 'w') as f:
        json.dump({'title': 'hosts', 'ranks_per_node': per_host, 'nodes': hosts,
                   'cost': {'send_ns': 5000, 'recv_ns': 5000, 'reduce': 5, 'copy': 5},
                   'links': [{'between': ['n%d' % h, 'switch'], 'latency_ns': latency_ns, 'rate': rate / 1e9}
                             for h in range(hosts)]}, f)
    subprocess.run([bin_path('gyre-plan'), 'schedule', '-c', 'all_reduce', '--algo', algo, '--order', 'fast', '-n',
                    str(hosts * per_host), '-t', network, '-b', str(SIZE), '--chunk', str(chunk), '--json', out],
                   check=True, stdout=subprocess.DEVNULL)
    with open(out) as f:
        result = json.load(f)['results'][0]
    return result['time_us'] * 1e-6, result['time_us'] * 1e-6 * result['hottest_busy']


def cell(rate_name, hosts, per_host, algo):
    """Seconds of a call, and the bytes of the chunks that the library takes; or None."""
    slow = rate_name == '100mbit'
    args = ['all_reduce', '-b', str(SIZE), '-e', str(SIZE), '-c', '0', '--inplace', '0', '-n', '2' if slow else '5', '-w', '1',
            '--explain']
    if algo != 'auto':
        args += ['--algo', algo]
    result, why = perf(hosts, per_host, args, {'GYRE_ORDER': 'fast'})
    name = 'bandwidth: %s, %d hosts x %d, %s' % (rate_name, hosts, per_host, algo)
    if not result:
        report.line(False, name, why)
        return None
    row = result['results'][0]
    return row['out_of_place']['p50'] * 1e-6, row['explain_out_of_place']['chunk']


def measure(rate_name, hosts, per_host, rounds):
    """Yardstick and cells in turn, so that what disturbs this machine disturbs both."""
    rates, times, chunk = [], {algo: [] for algo in ALGORITHMS}, {}
    for _ in range(rounds):
        rates.append(iperf(hosts, 2))
        for algo in ALGORITHMS:
            found = cell(rate_name, hosts, per_host, algo)
            if not found:
                return
            times[algo].append(found[0])
            chunk[algo] = found[1]
    rate = median(rates)
    ranks = hosts * per_host
    for algo in ALGORITHMS:
        time = median(times[algo])
        busbw = SIZE / time * 2 * (ranks - 1) / ranks
        # auto is held against the best that any algorithm could do: each host must send, and receive, 2 (hosts - 1) / hosts.
        predicted, allowed = plan(hosts, per_host, rate, algo, chunk[algo]) if algo != 'auto' else \
            (None, SIZE * 2 * (hosts - 1) / hosts / rate)
        share = allowed / time
        report.line(share >= GOAL, 'bandwidth: %s, %d hosts x %d, all_reduce of 16 MiB by %s' % (rate_name, hosts, per_host, algo),
                    '%.1f %% of what the link allows; %.0f ms, link alone %.0f ms%s; busbw %.1f MB/s, iperf3 %.1f MB/s; load %.1f' %
                    (100 * share, time * 1e3, allowed * 1e3, ', simulated %.0f ms' % (predicted * 1e3) if predicted else '',
                     busbw / 1e6, rate / 1e6, load()))


def main():
    for rate_name in ('100mbit', '1gbit'):
        nethosts('rate', 'all', rate_name)
        for hosts in (2, 3, 4):
            for per_host in (1, 2):
                measure(rate_name, hosts, per_host, (5 if LONG else 3) if rate_name == '1gbit' else 1)
