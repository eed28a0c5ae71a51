# SPDX-License-Identifier: Apache-2.0
# tests/hosts/shrink.py: 100 times a random rank of a job over 4 hosts is killed, and the others shrink and go on; then 10 times a
# newcomer on a random host takes the place of one that was killed. SEED=n repeats a run.
import os
import random
import signal
import time

from failures import HOSTS, start
from lab import LONG, median, nethosts, report

ROUNDS = 1000 if LONG else 100
GROWS = 100 if LONG else 10
LEAST = 3 # a job starts anew once so few are left
SECONDS = 30 # without a result for so long, it hangs


def results(job, names, word, count, since, what):
    """(seconds until the last of the ranks has its `count`th result `word`, and it is right, or None; what went wrong).
    names: what each rank adds to the result."""
    late = job.wait_for(names, word, SECONDS, count)
    if late:
        return None, '%s: ranks %s are stuck: %s' % (
            what, late, (job.text(late[0]) or job.errors(late[0])).strip().split('\n')[-1])
    expected = '%d %d' % (len(names), sum(names.values()))
    for rank in names:
        _, _, rest = job.find(rank, word)
        if rest != expected:
            return None, '%s: rank %d has "%s", not "%s"' % (what, rank, rest, expected)
    return max(job.find(r, word)[1] for r in names) - since, ''


def kill_one(job, names, round_number):
    victim = random.choice(list(names))
    del names[victim]
    before = {r: job.count(r, 'GOOD') for r in names}
    since = time.monotonic()
    job.signal(victim, signal.SIGKILL)
    return results(job, names, 'GOOD', {r: n + 1 for r, n in before.items()}, since,
                   'round %d, after the end of rank %d' % (round_number, victim))


def add_one(job, names, round_number):
    """A newcomer on a random host, invited by a random rank. It adds the number of ranks: it is the last one."""
    host, asked, key = random.randrange(HOSTS), random.choice(list(names)), max(job.ranks) + 1
    invited = job.count(asked, 'ADDRESS') + 1
    count = {r: job.count(r, 'GROWN') + 1 for r in names}
    since = time.monotonic()
    job.signal(asked, signal.SIGUSR2)
    if job.wait_for([asked], 'ADDRESS', SECONDS, invited):
        return None, 'round %d: rank %d names no address' % (round_number, asked)
    job.newcomer(key, host, job.find(asked, 'ADDRESS')[2])
    names[key] = len(names) + 1
    count[key] = 1
    return results(job, names, 'GROWN', count, since, 'round %d, newcomer %d on host %d' % (round_number, key, host))


def finish(job, names):
    """All leave through gyre_finalize."""
    for rank in names:
        job.signal(rank, signal.SIGTERM)
    codes = [job.ranks[r].wait(20) for r in names]
    return 'codes %s after gyre_finalize' % codes if any(codes) else ''


def shrinks(seed):
    done, times, wrong, jobs = 0, [], [], 0
    while done < ROUNDS and len(wrong) < 3:
        job = start(['--shrink'])
        jobs += 1
        names, why = {r: r + 1 for r in job.ranks}, ''
        while len(names) > LEAST and done < ROUNDS and not why:
            done += 1
            took, why = kill_one(job, names, done)
            times += [] if why else [took]
        why = why or finish(job, names)
        wrong += [why] if why else []
        job.end()
    report.line(not wrong and done == ROUNDS, 'shrink: %d rounds of killing a random rank' % ROUNDS,
                '%d done in %d jobs, seed %d; to the next good result: median %.2f s, longest %.2f s' %
                (len(times), jobs, seed, median(times) if times else 0, max(times, default=0)))
    for why in wrong:
        report.note(why)


def grows(seed):
    times, why, done = [], '', 0
    job = start(['--shrink'])
    names = {r: r + 1 for r in job.ranks}
    while done < GROWS and not why:
        done += 1
        _, why = kill_one(job, names, done)
        if not why:
            took, why = add_one(job, names, done)
            times += [] if why else [took]
    why = why or finish(job, names)
    job.end()
    report.line(not why, 'grow: %d rounds of a newcomer for a rank that was killed' % GROWS,
                '%d done, seed %d; from the invitation to the next good result: median %.2f s, longest %.2f s' %
                (len(times), seed, median(times) if times else 0, max(times, default=0)))
    if why:
        report.note(why)


def main():
    nethosts('rate', 'all', '1gbit')
    seed = int(os.environ.get('SEED') or random.randrange(1 << 30))
    random.seed(seed)
    shrinks(seed)
    grows(seed)
