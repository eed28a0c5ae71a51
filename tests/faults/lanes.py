# SPDX-License-Identifier: Apache-2.0
# tests/faults/lanes.py: runs rounds side by side. Each lane is a process. It reads the number of a round from its standard
# input, runs that round, writes one line about it, and then reads the next number. It ends at the end of its input.
import signal
import subprocess
import sys
import threading


class Lanes:
    """Hands out the rounds in order, to each lane one at a time. ended(number, line, status) is called once for each round,
    never twice at once: line is what the lane wrote; '' if the lane has ended instead, with that status."""

    def __init__(self, rounds, ended):
        self.rounds, self.ended = iter(rounds), ended
        self.lock, self.processes = threading.Lock(), []
        self.running, self.next, self.interrupted = set(), 0, False

    def run(self, commands):
        """commands: for each lane its arguments and its environment. Returns how many rounds no lane was left to run."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda what, _: sys.exit(128 + what))
        try:
            threads = []
            for argv, env in commands:
                lane = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                self.processes.append(lane)
                threads.append(threading.Thread(target=self.drive, args=(lane,), daemon=True))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self.interrupted = True
            for lane in self.processes:
                lane.terminate()
            for lane in self.processes:
                lane.wait()
        return sum(1 for _ in self.rounds)

    def first_open(self):
        """All rounds before this one have ended. Only for ended()."""
        return min(self.running, default=self.next)

    def take(self):
        with self.lock:
            number = next(self.rounds, None)
            if number is not None:
                self.running.add(number)
                self.next = number + 1
            return number

    def drive(self, lane):
        line = "first"
        while line and (number := self.take()) is not None:
            try:
                print(number, file=lane.stdin, flush=True)
                line = lane.stdout.readline()
            except BrokenPipeError:
                line = ""
            status = 0 if line else lane.wait()
            with self.lock:
                if self.interrupted:
                    return
                self.running.remove(number)
                self.ended(number, line, status)
        try:
            lane.stdin.close()
        except BrokenPipeError:
            pass  # of a lane that has ended: the number that it did not read
        lane.wait()
