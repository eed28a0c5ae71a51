# SPDX-License-Identifier: Apache-2.0
"""bench/bench_page.py: what a page is made of, one HTML file with nothing outside it (peers_page.py, too), and the page
of `make bench`, which bench_sections.py fills."""

import json
import os
import shlex

import bench_svg as svg
import machine
from bench_svg import esc, size_text

STYLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench_page.css")


def machine_facts(facts):
    """machine.facts as texts."""
    found = [f"{facts['cpu']}, {facts['cores']} processors"]
    if facts["caches"]:
        found.append("caches " + " / ".join(size_text(cache["bytes"]) for cache in facts["caches"]))
    if facts["memory_bytes"]:
        found.append(f"{facts['memory_bytes'] / (1 << 30):.0f} GiB memory")
    return found + [f"Linux {facts['kernel']}", facts["date"], f"commit {facts['commit']}"]


# ---- pieces of a page ----
def spans(facts):
    return '<div class="machine">' + "".join(f"<span>{esc(fact)}</span>" for fact in facts) + "</div>"


def tile(value, text):
    return f'<div class="tile"><b>{esc(value)}</b><span>{esc(text)}</span></div>'


def tiles(list_of_tiles):
    return '<div class="tiles">' + "".join(list_of_tiles) + "</div>"


def section(title, text, *parts):
    return f'<section><h2>{esc(title)}</h2><p class="soft">{esc(text)}</p>{"".join(parts)}</section>'


def grid(figures):
    return '<div class="grid3">' + "".join(figures) + "</div>"


def figure(name, title, drawing):
    return f'<figure data-plot="{esc(name)}"><h3>{esc(title)}</h3>{drawing}</figure>'


def details(summary, table):
    return f'<details><summary>{esc(summary)}</summary><div class="scroll">{table}</div></details>'


def write_page(path, title, parts, plots):
    """One file with nothing outside it. parts: HTML; plots: what was drawn, for scripts and tests."""
    data = json.dumps(plots).replace("</", "<\\/")
    with open(STYLE, encoding="utf-8") as f:
        style = f.read()
    body = "\n".join(parts)
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
            f"<title>{esc(title)}</title><style>\n{style}</style></head>\n<body><main>\n{body}\n"
            f'</main><script type="application/json" id="plots">{data}</script></body></html>\n'
        )
    os.replace(path + ".new", path)


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
        return figure(name, title, drawing)

    def lines(self, name, title, series, own_keys=False, **keywords):
        """own_keys: a legend of its own, where the section has none for it. The rest: svg.lines."""
        data = {label: points for label, _, points in series}
        keys = svg.legend([(label, color) for label, color, _ in series]) if own_keys else ""
        return self.figure(name, title, keys + svg.lines(name, series, **keywords), data)

    def section(self, title, text, *parts):
        self.parts.append(section(title, text, *parts))

    grid = staticmethod(grid)

    def details(self, head, rows):
        return details("all figures", svg.table(head, rows))

    def tile(self, value, text):
        self.tiles.append(tile(value, text))

    # ---- the whole ----
    def wrong(self):
        counts = [(s.result or {}).get("out_of_bounds") for s in self.steps]
        return sum(int(c["count"]) for c in counts if isinstance(c, dict))

    def head(self):
        failed = sum(s.code not in (0, None) for s in self.steps)
        late = sum(s.code is None for s in self.steps)
        checked = sum(1 for s in self.steps if s.result and "out_of_bounds" in s.result)
        wrong = self.wrong()
        facts = machine_facts(machine.facts(self.options.top)) + [f"{plural(len(self.steps) - late, 'run')} in {self.seconds:.0f} s"]
        out = ["<h1>Gyre: communication benchmark</h1>"]
        out.append(spans(facts))
        troubles = [plural(wrong, "wrong element")] if wrong else []
        troubles += [f"{plural(failed, 'run')} failed"] if failed else []
        troubles += [f"{plural(late, 'run')} left out: the time was up"] if late else []
        if troubles:
            out.append(f'<div class="banner">{esc("; ".join(troubles))}. See the commands below.</div>')
        self.tile(wrong, f"wrong elements; {plural(checked, 'run')} checked every result bit for bit")
        out.append(tiles(self.tiles))
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
        for add in sections:
            add(self)
        write_page(path, "Gyre: communication benchmark", self.head() + self.parts + [self.commands()], self.plots)
