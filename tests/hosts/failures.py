# tests/hosts/failures.py: what goes wrong at one of 8 ranks on 4 hosts ends at every survivor with an error that names the
# culprit, within the time that Gyre promises. The time is that of the last survivor, from the event.
import os
import re
import shutil
import signal
import time

from lab import BUILD, Job, nethosts, quick, report

HOSTS, PER_HOST, VICTIM = 4, 2, 5
RANK = os.path.join(BUILD, 'tests/hosts/rank')
DEAD, SILENT, AT_ONCE, DEADLINE, INIT = 1.0, 5.0, 1.0, 3.0, 3.0 # what is promised, s; the last two are asked for below
SLACK = 1.0 # for a machine on which eight ranks and a build share two cores: polling, waking, writing
PEER_DEAD, MISMATCH, TIMEOUT, ABORTED, TRANSPORT = 201, 200, 202, 203, 204


def start(args=(), **kw):
    env = dict({'GYRE_TIMEOUT': '20', 'GYRE_INIT_TIMEOUT': '20'}, **kw.pop('env', {}))
    job = Job([RANK, *args], HOSTS, PER_HOST, env, **kw)
    late = job.wait_for(job.ranks, 'READY', 30)
    if late:
        why = '; '.join('rank %d: %s' % (r, quick(job.errors(r) or job.text(r) or 'nothing')) for r in late[:2])
        job.end()
        raise RuntimeError('ranks %s did not get ready: %s' % (late, why))
    return job


def judge(name, job, survivors, since, limit, statuses, culprit):
    """Every survivor has one of the statuses, within the limit, and names the culprit (a regular expression)."""
    late = job.wait_for(survivors, 'ERROR', limit + SLACK + 10)
    bad, times = [], []
    for rank in survivors:
        found = None if rank in late else job.find(rank, 'ERROR')
        if not found:
            bad.append('rank %d heard nothing' % rank)
            continue
        status, text = found[2].split(' ', 1)
        times.append(found[1] - since)
        if int(status) not in statuses or not re.search(culprit, text):
            bad.append('rank %d: %s' % (rank, quick(found[2], 200)))
    last = max(times) if times else 0
    example = quick(job.find(survivors[0], 'ERROR')[2].split(' ', 1)[1]) if not bad else '; '.join(bad[:3])
    report.line(not bad and last <= limit + SLACK, 'failure: ' + name,
                'last of %d survivors after %.2f s (promised %.0f s)' % (len(times), last, limit))
    report.note(example)


def others(*ranks):
    return [r for r in range(HOSTS * PER_HOST) if r not in ranks]


def on_victim_host():
    host = VICTIM // PER_HOST
    return [r for r in range(HOSTS * PER_HOST) if r // PER_HOST == host]


def killed():
    job = start()
    since = time.monotonic()
    job.signal(VICTIM, signal.SIGKILL)
    judge('kill -9', job, others(VICTIM), since, DEAD, (PEER_DEAD,), 'rank %d' % VICTIM)
    job.end()


def stopped():
    job = start()
    since = time.monotonic()
    job.signal(VICTIM, signal.SIGSTOP)
    judge('SIGSTOP', job, others(VICTIM), since, SILENT, (PEER_DEAD,), 'rank %d' % VICTIM)
    job.signal(VICTIM, signal.SIGCONT)
    job.end()


def host_gone(name, command):
    """Those on the host are cut off, or gone; the rest names one of them."""
    lost = on_victim_host()
    job = start()
    since = time.monotonic()
    nethosts(command[0], VICTIM // PER_HOST, *command[1:])
    judge(name, job, others(*lost), since, SILENT, (PEER_DEAD,), 'rank (%s)' % '|'.join(map(str, lost)))
    if command[0] != 'crash':
        judge(name + ', seen from the host that is cut off', job, lost, since, SILENT, (PEER_DEAD, ABORTED),
              'rank [0-9]')
        nethosts('heal', VICTIM // PER_HOST)
    job.end()
    nethosts('up', HOSTS)


def told(name, what, limit, statuses, culprit, survivors=None, env=None):
    """The rank does it to itself, and says when."""
    job = start(['--at', str(VICTIM), '--do', what], env=env or {})
    job.signal(VICTIM, signal.SIGUSR1)
    if job.wait_for([VICTIM], 'EVENT', 10):
        report.line(False, 'failure: ' + name, 'rank %d did not do it' % VICTIM)
    else:
        judge(name, job, survivors or others(VICTIM), job.find(VICTIM, 'EVENT')[1], limit, statuses, culprit)
    job.end()


def full_disk():
    """The recorder's folder is full on one host. That is a warning there, which says what is lost, and no rank's end."""
    folder = os.path.join(os.environ['CHECK_HOSTS_TMP'], 'full')
    os.makedirs(folder, exist_ok=True)
    host = VICTIM // PER_HOST
    lost = on_victim_host()
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
                'ranks %s said so, all %d went on after %.2f s' % (warned, HOSTS * PER_HOST, time.monotonic() - since))
    report.note(quick(job.errors(lost[0])))
    since = time.monotonic()
    job.signal(VICTIM, signal.SIGKILL) # and what is recorded in memory alone still ends as it should
    judge('kill -9, with a full disk for the recorder', job, others(VICTIM), since, DEAD, (PEER_DEAD,), 'rank %d' % VICTIM)
    job.end()
    nethosts(*inside, 'umount %s' % folder)
    shutil.rmtree(folder, ignore_errors=True)


def missing():
    job = Job([RANK], HOSTS, PER_HOST, {'GYRE_INIT_TIMEOUT': '%g' % INIT}, missing=(VICTIM,))
    since = time.monotonic()
    judge('init with a missing rank', job, others(VICTIM), since, INIT, (TIMEOUT,), 'rank %d|[Rr]anks? .*\\b%d\\b' % (VICTIM, VICTIM))
    job.end()


def main():
    nethosts('rate', 'all', '1gbit')
    for check in (
            killed, stopped,
            lambda: host_gone('host cut off silently', ('cut', 'drop')),
            lambda: host_gone('link down', ('cut', 'link')),
            lambda: host_gone('host crashed', ('crash',)),
            lambda: told('exit(0) too early', 'exit', DEAD, (PEER_DEAD,), 'rank %d' % VICTIM),
            lambda: told('stuck in computing', 'stuck', DEADLINE, (TIMEOUT, PEER_DEAD), 'rank %d' % VICTIM,
                         env={'GYRE_TIMEOUT': '%g' % DEADLINE}),
            lambda: told('ranks disagree', 'disagree', AT_ONCE, (MISMATCH,), 'rank|elements|count',
                         survivors=list(range(HOSTS * PER_HOST))),
            lambda: told('gyre_comm_abort', 'abort', AT_ONCE, (ABORTED,), 'told to abort'),
            full_disk, missing):
        try:
            check()
        except (RuntimeError, OSError) as error:
            report.line(False, 'failure: could not be tried', quick(str(error), 300))
            nethosts('up', HOSTS)
