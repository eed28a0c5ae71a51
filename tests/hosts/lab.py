# SPDX-License-Identifier: Apache-2.0
# tests/hosts/lab.py: what the checks between hosts share: hosts (tests/lab/nethosts), jobs on them, and lines of results.
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NETHOSTS = os.path.join(TOP, 'tests/lab/nethosts')
BUILD = os.path.abspath(os.environ.get('B') or os.path.join(TOP, 'build'))
LONG = os.environ.get('TEST_LONG', '0') not in ('', '0')


def bin_path(name):
    return os.path.join(BUILD, 'bin', name)


class Report:
    """One line for each check; `N passed, N failed` at the end."""
    passed = failed = 0

    def line(self, good, name, figures):
        if good:
            self.passed += 1
        else:
            self.failed += 1
        print('%s  %s  %s' % ('ok    ' if good else 'FAILED', name, figures), flush=True)
        return good

    def note(self, text):
        print('        ' + text, flush=True)


report = Report()


def nethosts(*args, **kw):
    """Runs tests/lab/nethosts; returns what it prints."""
    done = subprocess.run([NETHOSTS, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kw)
    if done.returncode != 0:
        raise RuntimeError('nethosts %s: %s' % (' '.join(map(str, args)), done.stderr.strip()))
    return done.stdout.strip()


def on_host(host, argv, **kw):
    """A process on a host; the object's pid is that of a process on this side which ends with it."""
    return subprocess.Popen([NETHOSTS, 'exec', str(host), '--', *argv], stdin=subprocess.DEVNULL, **kw)


class Job:
    """Ranks by hand: `per_host` on each of `hosts`, told who they are by GYRE_* variables, without a launcher that would
    interfere; with `deal` they are dealt out to the hosts in turn. Each writes to a file of its own."""
    port = 21000

    def __init__(self, argv, hosts, per_host, env=None, missing=(), host_env=None, deal=False):
        Job.port = 21000 + (Job.port - 21000 + 7) % 7000  # below 32768, where the kernel chooses ports itself
        self.size = hosts * per_host
        self.per_host = per_host
        self.hosts = hosts if deal else 0
        self.folder = tempfile.mkdtemp(dir=os.environ['CHECK_HOSTS_TMP'])
        self.ranks = {}
        self.pids = {}
        self.argv = argv
        self.common = common = dict(os.environ, GYRE_SECRET=secrets.token_hex(32), GYRE_SIZE=str(self.size), GYRE_JOB='check-hosts',
                      GYRE_ROOT='%s:%d' % (nethosts('ip', 0), Job.port), GYRE_TUNE='none', **(env or {}))
        for rank in range(self.size):
            if rank in missing:
                continue
            mine = dict(common, GYRE_RANK=str(rank), **((host_env or {}).get(self.host_of(rank), {})))
            with open(self.path(rank), 'wb') as out, open(self.path(rank) + '.err', 'wb') as err:
                self.ranks[rank] = on_host(self.host_of(rank), argv, env=mine, stdout=out, stderr=err)

    def newcomer(self, key, host, address):
        """One more process, under the number `key`, which knocks at the job's address (GYRE_JOIN)."""
        env = {k: v for k, v in self.common.items() if k not in ('GYRE_SIZE', 'GYRE_ROOT')}
        with open(self.path(key), 'wb') as out, open(self.path(key) + '.err', 'wb') as err:
            self.ranks[key] = on_host(host, self.argv, env=dict(env, GYRE_JOIN=address), stdout=out, stderr=err)

    def host_of(self, rank):
        return rank % self.hosts if self.hosts else rank // self.per_host

    def path(self, rank):
        return os.path.join(self.folder, 'rank%d' % rank)

    def text(self, rank):
        with open(self.path(rank), errors='replace') as f:
            return f.read()

    def errors(self, rank):
        with open(self.path(rank) + '.err', errors='replace') as f:
            return f.read()

    def find(self, rank, word):
        """The last line of a rank that begins with `word`, split in three: word, time, rest; or None."""
        lines = [l for l in self.text(rank).split('\n')[:-1] if l.startswith(word + ' ')]
        if not lines:
            return None
        parts = lines[-1].split(' ', 2)
        return parts[0], float(parts[1]), parts[2] if len(parts) > 2 else ''

    def count(self, rank, word):
        """How many lines of a rank begin with `word`."""
        return sum(l.startswith(word + ' ') for l in self.text(rank).split('\n')[:-1])

    def wait_for(self, ranks, word, seconds, count=1):
        """Until each of the ranks has written `count` such lines (a number, or a dictionary by rank); those that have not by then."""
        end = time.monotonic() + seconds
        left = list(ranks)
        while True:
            left = [r for r in left if self.count(r, word) < (count[r] if isinstance(count, dict) else count)]
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.02)

    def pid(self, rank):
        """The rank itself, as this machine numbers it: the child of nsenter."""
        if rank not in self.pids:
            above = self.ranks[rank].pid
            with open('/proc/%d/task/%d/children' % (above, above)) as f:
                self.pids[rank] = int(f.read().split()[0])
        return self.pids[rank]

    def signal(self, rank, number):
        os.kill(self.pid(rank), number)

    def wait(self, seconds):
        """Exit codes by rank; None for those that had to be killed."""
        end = time.monotonic() + seconds
        codes = {}
        for rank, process in self.ranks.items():
            try:
                codes[rank] = process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                codes[rank] = None
        self.end()
        return codes

    def end(self):
        for rank, process in self.ranks.items():
            if process.poll() is None:
                for kill in (lambda: self.signal(rank, signal.SIGKILL), process.kill):
                    try:
                        kill()
                    except (OSError, IndexError):
                        pass # it has ended by itself meanwhile
                process.wait()


def perf(hosts, per_host, args, env=None, seconds=120, deal=False):
    """gyre-perf over the hosts: (results of its JSON file, text of the failure or '')."""
    file = os.path.join(tempfile.mkdtemp(dir=os.environ['CHECK_HOSTS_TMP']), 'perf.json')
    job = Job([bin_path('gyre-perf'), *args, '--json', file], hosts, per_host, env, deal=deal)
    codes = job.wait(seconds)
    bad = [r for r in codes if codes[r] != 0]
    if bad:
        last = (job.errors(bad[0]) or job.text(bad[0])).strip().split('\n')[-1]
        return None, 'rank %d: code %s: %s' % (bad[0], codes[bad[0]], last)
    with open(file) as f:
        return json.load(f), ''


def quick(text, limit=150):
    text = re.sub(r'\s+', ' ', text)
    return text if len(text) <= limit else text[:limit - 3] + '...'


def median(values):
    values = sorted(values)
    return values[len(values) // 2] if len(values) % 2 else (values[len(values) // 2 - 1] + values[len(values) // 2]) / 2


def load():
    return os.getloadavg()[0]


def stop(text):
    print('check-hosts: ' + text, file=sys.stderr)
    print('0 passed, 1 failed')
    sys.exit(1)
