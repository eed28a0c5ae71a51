# SPDX-License-Identifier: Apache-2.0
"""bench/machine.py: the machine that a benchmark runs on: what the kernel says of it, what limits.c measures, and the
costs that Gyre measures for its own choices. Standard library only."""

import json
import os
import platform
import re
import subprocess
import tempfile
import time


def read_line(path, start=""):
    """The first line of a file that begins so; "" if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return next((line.strip() for line in f if line.startswith(start)), "")
    except OSError:
        return ""


def after_colon(line):
    return line.partition(":")[2].strip()


CPUS = "/sys/devices/system/cpu"


def data_caches(cpu, root=CPUS):
    """[(level, bytes, processors that share it)]: data caches of a processor, the nearest first."""
    found, base = [], f"{root}/cpu{cpu}/cache"
    for index in range(8):
        if read_line(f"{base}/index{index}/type") in ("Data", "Unified"):
            level, size = read_line(f"{base}/index{index}/level"), read_line(f"{base}/index{index}/size")  # "480K"
            if size[:-1].isdigit() and size.endswith("K"):
                shared = read_line(f"{base}/index{index}/shared_cpu_list") or str(cpu)
                found.append((int(level), int(size[:-1]) << 10, shared))
    return found


def caches():
    """[{"level", "bytes"}]: data caches of the first processor, the nearest first."""
    return [{"level": level, "bytes": size} for level, size, _ in data_caches(0)]


def commit(top):
    try:
        command = ["git", "describe", "--always", "--dirty"]
        return subprocess.run(command, cwd=top, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def facts(top):
    """What the kernel says, and the commit of the sources at `top`."""
    memory = after_colon(read_line("/proc/meminfo", "MemTotal")).split()
    return {
        "cpu": after_colon(read_line("/proc/cpuinfo", "model name")) or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "caches": caches(),
        "memory_bytes": int(memory[0]) << 10 if memory else 0,
        "kernel": platform.release(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": commit(top),
    }


def last_level(cpus=None, root=CPUS):
    """Bytes of all last-level caches of our processors, each counted once; 64 MiB where they are unknown."""
    last = [data_caches(cpu, root)[-1:] for cpu in cpus or os.sched_getaffinity(0)]
    return sum({shared: size for found in last for _, size, shared in found}.values()) or 64 << 20


def name(machine):
    """A word for folders: "amd-epyc-2"."""
    words = re.sub(r"\(\w+\)|@.*|\b(cpu|processor|with|\d+-core)\b", " ", machine["cpu"], flags=re.I)
    words = re.findall(r"[a-z0-9]+", words.lower())
    return "-".join(words[:4] + [str(machine["cores"])])


def busy_seconds():
    """What our processors have worked so far, in seconds, and what their host took from them."""
    ours = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    ticks = 0
    with open("/proc/stat", encoding="ascii") as f:
        for words in map(str.split, f):
            if words[0] in ours:
                user, nice, system, _, _, _, _, steal = map(int, words[1:9])
                ticks += user + nice + system + steal
    return ticks / os.sysconf("SC_CLK_TCK")


def run(words, what):
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"bench: {what} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def limits(program, milliseconds):
    """What limits.c measures; names end in the unit."""
    return json.loads(run([program, str(milliseconds)], program))


def costs(gyre_bin):
    """The costs that Gyre chooses by: as it measures them now, and as its jobs have them from the cache."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tune")
        run([os.path.join(gyre_bin, "gyre-perf"), "--tune=" + path], "gyre-perf --tune")
        with open(path, encoding="utf-8") as f:
            found = re.findall(r"^cost (\w+) +(\S+) +# ((?:ns|GB/s|bytes)?)(?:: )?(.*)$", f.read(), re.M)
    measured = {cost: {"value": float(value), "unit": unit, "meaning": text} for cost, value, unit, text in found}
    doctor = json.loads(run([os.path.join(gyre_bin, "gyre-doctor"), "--json", "-"], "gyre-doctor"))
    wanted = ("tuning", "costs in ns", "costs in GB/s", "costs in bytes")
    return {"measured": measured, "in_use": {f["name"]: f["value"] for f in doctor["findings"] if f["name"] in wanted}}
