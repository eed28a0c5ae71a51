# SPDX-License-Identifier: Apache-2.0
# tests/hosts/train.py: training that loses a host and keeps its bits: train_restart.sh, as a part of `make check-hosts`.
import os
import subprocess

from lab import TOP, report


def main():
    # hosts of its own: they are made anew for each loss
    env = dict(os.environ, NETHOSTS_PREFIX='tr%04x' % (os.getpid() & 0xffff))
    done = subprocess.run([os.path.join(TOP, 'tests/hosts/train_restart.sh')], env=env, cwd=TOP, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
    lines = done.stdout.strip().splitlines() or ['nothing was said']
    for line in lines[:-1]:
        report.note(line)
    report.line(done.returncode == 0, 'training over hosts that loses one keeps its bits', lines[-1])
