# SPDX-License-Identifier: Apache-2.0
"""bench/bench_page.py: the page of `make bench`: one HTML file with nothing outside it; bench_sections.py fills it."""

import json
import os
import platform
import shlex
import subprocess
import time

import bench_svg as svg
from bench_svg import esc, size_text

STYLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench_page.css")


# ---- the machine ----
def read_line(path, start=""):
    """The first line of a file that begins so; "" if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return next((line.strip() for line in f if line.startswith(start)), "")
    except OSError:
        return ""


def after_colon(line):
    return line.partition(":")[2].strip()


def caches():
    """["32K", "1M", "32M"]: data caches of the first processor."""
    found, base = [], "/sys/devices/system/cpu/cpu0/cache"
    for index in range(8):
        if read_line(f"{base}/index{index}/type") in ("Data", "Unified"):
            size = read_line(f"{base}/index{index}/size")  # "491520K"
            found.append(size_text(int(size[:-1]) << 10) if size[:-1].isdigit() and size.endswith("K") else size)
    return found


def commit(top):
    try:
        command = ["git", "describe", "--always", "--dirty"]
        done = subprocess.run(
            command, cwd=top, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
        )
        return f"commit {done.stdout.strip()}"
    except (OSError, subprocess.CalledProcessError):
        return "commit unknown"


def machine(top):
    model = after_colon(read_line("/proc/cpuinfo", "model name")) or platform.machine()
    memory = after_colon(read_line("/proc/meminfo", "MemTotal")).split()
    facts = [f"{model}, {len(os.sched_getaffinity(0))} processors"]
    if caches():
        facts.append("caches " + " / ".join(caches()))
    if memory:
        facts.append(f"{int(memory[0]) / (1 << 20):.0f} GiB memory")
    return facts + [f"Linux {platform.release()}", time.strftime("%Y-%m-%d %H:%M %Z"), commit(top)]


# ---- results ----
def median(values):
    values = sorted(values)
    return values[len(values) // 2] if values else None


def rows_of(step):
    return step.result["results"] if step and step.result else []


def plural(count, what):
    return f"{count} {what}{'' if count == 1 else 's'}"


class Page:
    """What the sections put together. steps: bench.py's Step, each with its result, if it had one."""

    def __init__(self, options, steps, seconds):
        self.options, self.steps, self.seconds = options, steps, seconds
        self.plots = {}  # name -> what was drawn, for scripts and tests
        self.tiles, self.parts = [], []

    def rows(self, *key):
        return [row for step in self.steps if step.key == key for row in rows_of(step)]

    def floors(self):
        """memcpy in GB/s ("large", "cache") and "cache_bytes": medians over the runs."""
        configs = [s.result["config"] for s in self.steps if s.result and isinstance(s.result.get("config"), dict)]
        seen = [c["memcpy_gbs"] for c in configs if "memcpy_gbs" in c]
        if not seen:
            return None
        rates = {k: median([m[k] for m in seen]) for k in ("large", "cache")}
        return dict(rates, cache_bytes=seen[0]["cache_bytes"])

    # ---- pieces ----
    def figure(self, name, title, drawing, data):
        self.plots[name] = data
        return f'<figure data-plot="{esc(name)}"><h3>{esc(title)}</h3>{drawing}</figure>'

    def lines(self, name, title, series, own_keys=False, **keywords):
        """own_keys: a legend of its own, where the section has none for it. The rest: svg.lines."""
        data = {label: points for label, _, points in series}
        keys = svg.legend([(label, color) for label, color, _ in series]) if own_keys else ""
        return self.figure(name, title, keys + svg.lines(name, series, **keywords), data)

    def section(self, title, text, *parts):
        body = "".join(parts)
        self.parts.append(f'<section><h2>{esc(title)}</h2><p class="soft">{esc(text)}</p>{body}</section>')

    def grid(self, figures):
        return '<div class="grid3">' + "".join(figures) + "</div>"

    def details(self, head, rows):
        table = svg.table(head, rows)
        return f'<details><summary>all figures</summary><div class="scroll">{table}</div></details>'

    def tile(self, value, text):
        self.tiles.append(f'<div class="tile"><b>{esc(value)}</b><span>{esc(text)}</span></div>')

    # ---- the whole ----
    def wrong(self):
        counts = [(s.result or {}).get("out_of_bounds") for s in self.steps]
        return sum(int(c["count"]) for c in counts if isinstance(c, dict))

    def head(self):
        failed = sum(s.code not in (0, None) for s in self.steps)
        late = sum(s.code is None for s in self.steps)
        checked = sum(1 for s in self.steps if s.result and "out_of_bounds" in s.result)
        wrong = self.wrong()
        facts = machine(self.options.top) + [f"{plural(len(self.steps) - late, 'run')} in {self.seconds:.0f} s"]
        out = ["<h1>Gyre: communication benchmark</h1>"]
        out.append('<div class="machine">' + "".join(f"<span>{esc(fact)}</span>" for fact in facts) + "</div>")
        troubles = [plural(wrong, "wrong element")] if wrong else []
        troubles += [f"{plural(failed, 'run')} failed"] if failed else []
        troubles += [f"{plural(late, 'run')} left out: the time was up"] if late else []
        if troubles:
            out.append(f'<div class="banner">{esc("; ".join(troubles))}. See the commands below.</div>')
        self.tile(wrong, f"wrong elements; {plural(checked, 'run')} checked every result bit for bit")
        out.append('<div class="tiles">' + "".join(self.tiles) + "</div>")
        return out

    def commands(self):
        rows = ""
        for s in self.steps:
            error = f'<br><span class="bad">{esc(s.error)}</span>' if s.code != 0 else ""
            took = "-" if s.seconds is None else f"{s.seconds:.1f} s"
            rows += f'<tr><td><code>{esc(shlex.join(s.command("build/bin")))}</code>{error}</td><td>{took}</td></tr>'
        return (
            '<section><h2>Commands</h2><p class="soft">Each as it was run, and how long it took. '
            "<code>make bench</code> runs them all.</p>"
            f"<details><summary>{plural(len(self.steps), 'command')}</summary>"
            f'<table class="commands">{rows}</table></details></section>'
        )

    def write(self, path, sections):
        for section in sections:
            section(self)
        body = "\n".join(self.head() + self.parts + [self.commands()])
        data = json.dumps(self.plots).replace("</", "<\\/")
        with open(STYLE, encoding="utf-8") as f:
            style = f.read()
        with open(path + ".new", "w", encoding="utf-8") as f:
            f.write(
                '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
                '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
                f"<title>Gyre: communication benchmark</title><style>\n{style}</style></head>\n<body><main>\n{body}\n"
                f'</main><script type="application/json" id="plots">{data}</script></body></html>\n'
            )
        os.replace(path + ".new", path)
