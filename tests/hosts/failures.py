# SPDX-License-Identifier: Apache-2.0
# tests/hosts/failures.py: what goes wrong at one of 8 ranks on 4 hosts ends at every survivor with an error that names the
# culprit, within the time that Gyre promises. The time is that of the last survivor, from the event.
#
# Each failure strikes rank 0 (the root of the bootstrap's tree), a host's first rank (an inner node) and a leaf, by chance: SEED=n
# repeats a run. A table of all times comes last.
import os
import random
import re
import shutil
import signal
import time

from lab import BUILD, Job, nethosts, quick, report

HOSTS, PER_HOST = 4, 2
SIZE = HOSTS * PER_HOST
RANK = os.path.join(BUILD, 'tests/hosts/rank')
COUNT = 1024 # rank.c's; a rank that disagrees calls with one less
DEAD, SILENT, AT_ONCE, DEADLINE, INIT = 1.0, 5.0, 1.0, 3.0, 3.0 # what is promised, s; the last two are asked for below
SLACK = 1.0 # for a machine on which eight ranks and a build share two cores: polling, waking, writing; and for asking who is stuck
PEER_DEAD, MISMATCH, TIMEOUT, ABORTED, BOOTSTRAP = 201, 200, 202, 203, 302

table = [] # (failure, victim, promised, seconds or None)


def start(args=(), **kw):
    env = dict({'GYRE_TIMEOUT': '20', 'GYRE_INIT_TIMEOUT': '20'}, **kw.pop('env', {}))
    job = Job([RANK, *args], HOSTS, PER_HOST, env, **kw)
    late = job.wait_for(job.ranks, 'READY', 30)
    if late:
        why = '; '.join('rank %d: %s' % (r, quick(job.errors(r) or job.text(r) or 'nothing')) for r in late[:2])
        job.end()
        raise RuntimeError('ranks %s did not get ready: %s' % (late, why))
    return job


def judge(name, victim, job, survivors, since, limit, status, culprit):
    """Every survivor has the status (or one of several), within the limit, and names the culprit (a regular expression).
    since: when it happened; None: a survivor's time counts from its own call of gyre_init."""
    late = job.wait_for(survivors, 'ERROR', limit + SLACK + 10)
    statuses = status if isinstance(status, tuple) else (status,)
    bad, times = [], []
    for rank in survivors:
        found = None if rank in late else job.find(rank, 'ERROR')
        if not found:
            bad.append('rank %d heard nothing' % rank)
            continue
        code, text = found[2].split(' ', 1)
        times.append(found[1] - (job.find(rank, 'START')[1] if since is None else since))
        if int(code) not in statuses or not re.search(culprit, text):
            bad.append('rank %d: %s' % (rank, found[2]))
    last = max(times) if len(times) == len(survivors) else None
    good = not bad and last <= limit + SLACK
    table.append((name, victim, limit, last, good))
    report.line(good, 'failure: %s of %s' % (name, victim),
                'last of %d survivors after %.2f s (promised %.0f s)' % (len(times), max(times, default=0), limit))
    if bad:
        for text in bad[:3]:
            report.note(text)
    else:
        report.note(quick(job.find(survivors[0], 'ERROR')[2].split(' ', 1)[1], 400))


def others(*ranks):
    return [r for r in range(SIZE) if r not in ranks]


def host_of(rank):
    return rank // PER_HOST


def ranks_on(host):
    return [r for r in range(SIZE) if host_of(r) == host]


def killed(victim):
    job = start()
    since = time.monotonic()
    job.signal(victim, signal.SIGKILL)
    judge('kill -9', 'rank %d' % victim, job, others(victim), since, DEAD, PEER_DEAD, 'rank %d died: ' % victim)
    job.end()


def stopped(victim):
    job = start()
    since = time.monotonic()
    job.signal(victim, signal.SIGSTOP)
    judge('SIGSTOP', 'rank %d' % victim, job, others(victim), since, SILENT, PEER_DEAD, 'rank %d died: silent' % victim)
    job.signal(victim, signal.SIGCONT)
    job.end()


def host_gone(name, command, victim):
    """Those on the host are cut off, or gone; the rest names one of them."""
    host = host_of(victim)
    lost = ranks_on(host)
    job = start()
    since = time.monotonic()
    nethosts(command[0], host, *command[1:])
    judge(name, 'host %d' % host, job, others(*lost), since, SILENT, PEER_DEAD, 'rank (%s) died' % '|'.join(map(str, lost)))
    if command[0] != 'crash':
        judge(name + ', seen from there', 'host %d' % host, job, lost, since, SILENT, (PEER_DEAD, ABORTED),
              'rank (%s)\\b' % '|'.join(map(str, others(*lost))))
        nethosts('heal', host)
    job.end()
    nethosts('up', HOSTS)


def told(name, what, limit, status, culprit, victim, survivors=None, env=None):
    """The rank does it to itself, and says when. culprit: with %d for the rank."""
    job = start(['--at', str(victim), '--do', what], env=env or {})
    job.signal(victim, signal.SIGUSR1)
    if job.wait_for([victim], 'EVENT', 10):
        report.line(False, 'failure: %s of rank %d' % (name, victim), 'it did not do it')
    else:
        judge(name, 'rank %d' % victim, job, survivors or others(victim), job.find(victim, 'EVENT')[1], limit, status,
              culprit.replace('%d', str(victim)))
    job.end()


def full_disk(victim):
    """The recorder's folder is full on one host. That is a warning there, which says what is lost, and no rank's end."""
    folder = os.path.join(os.environ['CHECK_HOSTS_TMP'], 'full')
    os.makedirs(folder, exist_ok=True)
    host = host_of(victim)
    lost = ranks_on(host)
    inside = ['exec', host, '--', 'sh', '-c']
    nethosts(*inside, 'mount -t tmpfs -o size=16k tmpfs %s && head -c 100000 /dev/zero >%s/full || true' % (folder, folder))
    since = time.monotonic()
    try:
        job = start(env={'GYRE_RECORD': folder})
    except RuntimeError as error:
        report.line(False, 'failure: full disk for the recorder', str(error))
        return
    warned = [r for r in lost if 'flight recorder' in job.errors(r)]
    report.line(warned == lost, 'failure: full disk for the recorder',
                'ranks %s said so, all %d went on after %.2f s' % (warned, SIZE, time.monotonic() - since))
    report.note(quick(job.errors(lost[0])))
    since = time.monotonic()
    job.signal(victim, signal.SIGKILL) # and what is recorded in memory alone still ends as it should
    judge('kill -9, disk for the recorder full', 'rank %d' % victim, job, others(victim), since, DEAD, PEER_DEAD,
          'rank %d died: ' % victim)
    job.end()
    nethosts(*inside, 'umount %s' % folder)
    shutil.rmtree(folder, ignore_errors=True)


def missing(*victims):
    """Who is missing is named in ranges; whom nobody can reach is the root itself."""
    job = Job([RANK], HOSTS, PER_HOST, {'GYRE_INIT_TIMEOUT': '%g' % INIT}, missing=victims)
    if 0 in victims:
        status, culprit = BOOTSTRAP, 'could not reach rank 0 '
    else:
        listed = '%d-%d' % (victims[0], victims[-1]) if len(victims) > 1 else '%d' % victims[0]
        status, culprit = TIMEOUT, r'rank\(s\) %s to join' % listed
    judge('missing at gyre_init', 'rank ' + '-'.join(map(str, victims)), job, others(*victims), None, INIT, status, culprit)
    job.end()


def print_table():
    report.note('')
    report.note('%-38s %-10s %9s %9s' % ('failure', 'victim', 'promised', 'last has'))
    for name, victim, limit, last, good in table:
        report.note('%-38s %-10s %7.0f s %9s%s' % (name, victim, limit, 'never' if last is None else '%.2f s' % last,
                                                  '' if good else '  FAILED'))


def main():
    nethosts('rate', 'all', '1gbit')
    seed = int(os.environ.get('SEED') or random.randrange(1 << 30))
    chance = random.Random(seed)
    print('# failures: SEED=%d' % seed, flush=True)

    def victims():
        """The root, a host's first rank that is an inner node of the tree, a leaf."""
        return [0, PER_HOST * chance.randrange(1, HOSTS), PER_HOST * chance.randrange(HOSTS) + 1]

    stuck = r'rank %d on host \S+ keeps it waiting: it is in no call; its last calls: all_reduce #\d+ \(count'
    differ = r'(?=.*rank %d)(?=.*all_reduce #\d+ \(count {0},)(?=.*all_reduce #\d+ \(count {1},)'.format(COUNT, COUNT - 1)
    checks = []
    for check in (
            killed, stopped,
            lambda v: host_gone('host cut off silently', ('cut', 'drop'), v),
            lambda v: host_gone('link down', ('cut', 'link'), v),
            lambda v: host_gone('host crashed', ('crash',), v),
            lambda v: told('exit(0) too early', 'exit', DEAD, PEER_DEAD, 'rank %d died: it ended', v),
            lambda v: told('stuck in computing', 'stuck', DEADLINE, TIMEOUT, stuck, v, env={'GYRE_TIMEOUT': '%g' % DEADLINE}),
            lambda v: told('ranks disagree', 'disagree', AT_ONCE, MISMATCH, differ, v, survivors=list(range(SIZE))),
            lambda v: told('gyre_comm_abort', 'abort', AT_ONCE, ABORTED, r'rank %d\b.*asked to abort', v),
            missing):
        checks += [(check, (v,)) for v in victims()]
    checks.append((missing, tuple(ranks_on(chance.randrange(1, HOSTS)))))
    checks.append((full_disk, (chance.randrange(1, SIZE),)))
    for check, args in checks:
        try:
            check(*args)
        except (RuntimeError, OSError) as error:
            report.line(False, 'failure: could not be tried', quick(str(error), 300))
            nethosts('up', HOSTS)
    print_table()
