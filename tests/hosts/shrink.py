# tests/hosts/shrink.py: 100 times a random rank of a job over 4 hosts is killed, and the others shrink and go on.
import os
import random
import signal
import time

from failures import HOSTS, PER_HOST, start
from lab import LONG, median, nethosts, report

ROUNDS = 1000 if LONG else 100
LEAST = 3 # a job starts anew once so few are left
SECONDS = 30 # without a result for so long, it hangs


def one_round(job, alive, round_number, count):
    """Kills one. Returns (seconds to the last survivor's next good result or None, what went wrong)."""
    victim = random.choice(alive)
    alive.remove(victim)
    since = time.monotonic()
    job.signal(victim, signal.SIGKILL)
    late = job.wait_for(alive, 'GOOD', SECONDS, count)
    if late:
        return None, 'round %d: after the end of rank %d ranks %s are stuck: %s' % (
            round_number, victim, late, (job.text(late[0]) or job.errors(late[0])).strip().split('\n')[-1])
    expected = sum(r + 1 for r in alive)
    for rank in alive:
        _, _, rest = job.find(rank, 'GOOD')
        if rest != '%d %d' % (len(alive), expected):
            return None, 'round %d: rank %d has "%s", not "%d %d"' % (round_number, rank, rest, len(alive), expected)
    return max(job.find(r, 'GOOD')[1] for r in alive) - since, ''


def main():
    nethosts('rate', 'all', '1gbit')
    seed = int(os.environ.get('SEED') or random.randrange(1 << 30))
    random.seed(seed)
    done, times, wrong, jobs = 0, [], [], 0
    while done < ROUNDS and len(wrong) < 3:
        job = start(['--shrink'])
        jobs += 1
        alive, count = list(job.ranks), 0
        while len(alive) > LEAST and done < ROUNDS:
            done += 1
            count += 1
            took, why = one_round(job, alive, done, count)
            if why:
                wrong.append(why)
                break
            times.append(took)
        else:
            for rank in alive:
                job.signal(rank, signal.SIGTERM)
            codes = [job.ranks[r].wait(20) for r in alive]
            if any(codes):
                wrong.append('job %d: codes %s after gyre_finalize' % (jobs, codes))
        job.end()
    report.line(not wrong and done == ROUNDS, 'shrink: %d rounds of killing a random rank' % ROUNDS,
                '%d done in %d jobs, seed %d; to the next good result: median %.2f s, longest %.2f s' %
                (len(times), jobs, seed, median(times) if times else 0, max(times, default=0)))
    for why in wrong:
        report.note(why)
