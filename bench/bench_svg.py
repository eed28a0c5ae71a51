# SPDX-License-Identifier: Apache-2.0
"""bench/bench_svg.py: charts as inline SVG, drawn with the page's own colours: readable in light and dark.

A chart is a function from data to a string. Colours are CSS variables (--c0 ...), so nothing here knows which theme is
on; series differ in their markers, too. Every point carries its figures as a tooltip."""

import html
import math

W, H = 380, 236
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 10, 34
MARKS = "csdt"  # circle, square, diamond, triangle


def esc(text):
    return html.escape(str(text), quote=True)


def size_text(n):
    """65536 -> 64K"""
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if n >= 1 << shift:
            value = n / (1 << shift)
            return f"{value:.0f}{unit}" if value == int(value) else f"{value:.1f}{unit}"
    return f"{n:.0f}"


def bytes_text(n):
    """65536 -> 64 KiB"""
    text = size_text(n)
    return f"{text[:-1]} {text[-1]}iB" if text[-1].isalpha() else f"{text} B"


def time_text(us):
    """Microseconds in the unit that reads best."""
    for limit, scale, unit in ((1, 1e3, "ns"), (1e3, 1, "µs"), (1e6, 1e-3, "ms")):
        if us < limit:
            return f"{us * scale:.3g} {unit}"
    return f"{us * 1e-6:.3g} s"


def number_text(value):
    if value and (abs(value) < 0.01 or abs(value) >= 1e5):
        return f"{value:.1e}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


class Axis:
    """Values to pixels; log: base 2 or 10, or 0 for linear."""

    def __init__(self, values, log, start, end, text, zero=True):
        low, high = min(values), max(values)
        if log:
            low, high = max(low, 1e-9), max(high, 1e-9)
            step = math.log(log)
            self.low, self.high = math.log(low) / step, math.log(high) / step
            if log == 10:
                self.low, self.high = math.floor(self.low + 1e-9), math.ceil(self.high - 1e-9)
        else:
            self.low, self.high = (0.0 if zero and low > 0 else low), high
            room = (self.high - self.low) * 0.06 or abs(self.high) * 0.1 or 1.0
            self.high += room
            if self.low < 0 or not zero:
                self.low -= room
        if self.high <= self.low:
            self.low, self.high = self.low - 0.5, self.high + 0.5
        self.log, self.start, self.end, self.text = log, start, end, text

    def __call__(self, value):
        at = math.log(max(value, 1e-12)) / math.log(self.log) if self.log else value
        part = (at - self.low) / (self.high - self.low)
        return self.start + min(max(part, -0.02), 1.02) * (self.end - self.start)

    def ticks(self, most):
        if self.log:
            whole = range(math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9) + 1)
            step = max(1, math.ceil(len(whole) / most))
            return [self.log**k for k in whole if (k - whole[0]) % step == 0]
        raw = (self.high - self.low) / max(most - 1, 1)
        unit = 10 ** math.floor(math.log10(raw))
        step = next(unit * k for k in (1, 2, 2.5, 5, 10) if unit * k >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def frame(x, y, x_label, y_label, x_most=7, y_most=8):
    parts = []
    for value in y.ticks(y_most):
        at = y(value)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{W - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text class="tick" x="{LEFT - 6}" y="{at + 3.5:.1f}" text-anchor="end">{esc(y.text(value))}</text>'
        )
    for value in x.ticks(x_most):
        at = x(value)
        anchor = "end" if at > W - RIGHT - 16 and len(x.text(value)) > 4 else "middle"
        parts.append(
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{H - BOTTOM}"/>'
            f'<text class="tick" x="{at:.1f}" y="{H - BOTTOM + 14}" text-anchor="{anchor}">{esc(x.text(value))}</text>'
        )
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{W - RIGHT}" y1="{H - BOTTOM}" y2="{H - BOTTOM}"/>')
    parts.append(
        f'<text class="label" x="{(LEFT + W - RIGHT) / 2}" y="{H - 4}" text-anchor="middle">{esc(x_label)}</text>'
    )
    parts.append(
        f'<text class="label" x="9" y="{(TOP + H - BOTTOM) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 9 {(TOP + H - BOTTOM) / 2})">{esc(y_label)}</text>'
    )
    return "".join(parts)


def mark(kind, at_x, at_y, color, tip, scale=1.0):
    shapes = {
        "c": '<circle r="3"/>',
        "s": '<rect x="-2.7" y="-2.7" width="5.4" height="5.4"/>',
        "d": '<path d="M0 -3.8l3.8 3.8l-3.8 3.8l-3.8 -3.8z"/>',
        "t": '<path d="M0 -3.6l3.6 6.2h-7.2z"/>',
    }
    place = f"translate({at_x:.1f} {at_y:.1f})" + (f" scale({scale})" if scale != 1.0 else "")
    return f'<g fill="var(--c{color})" class="mark" transform="{place}">{shapes[kind]}<title>{esc(tip)}</title></g>'


def open_svg(name):
    return f'<svg viewBox="0 0 {W} {H}" role="img" aria-label="{esc(name)}">'


def lines(
    name,
    series,
    x_label="size (B)",
    y_label="",
    x_log=2,
    y_log=10,
    x_text=size_text,
    y_text=time_text,
    floors=(),
    y_range=None,
    zero=True,
    level=None,
    bold=(),
    dashed=(),
):
    """series: [(label, colour, [(x, y)])]; floors: [(label, [(x, y)])] and level, a horizontal line, are dashed.
    bold, dashed: labels of series."""
    points = [p for _, _, data in series for p in data]
    if not points:
        return f'<p class="missing">{esc(name)}: no figures</p>'
    ys = list(y_range) if y_range else [p[1] for p in points]
    if level is not None:
        ys += [0.9 * level, 1.1 * level]  # noise around it must not fill the chart
    x = Axis([p[0] for p in points], x_log, LEFT, W - RIGHT, x_text)
    y = Axis(ys, y_log, H - BOTTOM, TOP, y_text, zero)
    clip = "clip-" + "".join(c if c.isalnum() else "-" for c in name)
    out = [
        open_svg(name),
        frame(x, y, x_label, y_label),
        f'<clipPath id="{clip}"><rect x="{LEFT}" y="{TOP}" width="{W - LEFT - RIGHT}" '
        f'height="{H - TOP - BOTTOM}"/></clipPath>',
    ]
    for label, data in floors:
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in data)
        out.append(
            f'<g clip-path="url(#{clip})"><polyline class="floor" points="{path}"/></g><title>{esc(label)}</title>'
        )
    if level is not None:
        out.append(f'<line class="floor" x1="{LEFT}" x2="{W - RIGHT}" y1="{y(level):.1f}" y2="{y(level):.1f}"/>')
    for i, (label, color, data) in enumerate(series):
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in data)
        manner = (" bold" if label in bold else "") + (" dashed" if label in dashed else "")
        out.append(f'<polyline class="line{manner}" stroke="var(--c{color})" points="{path}"/>')
        for a, b in data:
            out.append(
                mark(
                    MARKS[i % len(MARKS)],
                    x(a),
                    y(b),
                    color,
                    f"{label}: {x_text(a)}, {y_text(b)}",
                    0.75 if len(data) > 14 else 1.0,
                )
            )
    out.append("</svg>")
    return "".join(out)


def histogram(name, edges, counts, marks, color=0):
    """edges in us, log-spaced; marks: [(label, us)], vertical lines."""
    total = sum(counts) or 1
    shares = [100.0 * c / total for c in counts]
    marked = [us for _, us in marks]
    body = [i for i, c in enumerate(counts) if c and edges[i] <= max(marked) * 2] or [0]
    low, high = edges[body[0]], max(edges[body[-1] + 1], max(marked) * 1.1)
    x = Axis([low, max(high, low * 2)], 2, LEFT, W - RIGHT, time_text)
    y = Axis([0, max(shares)], 0, H - BOTTOM, TOP + 22, lambda v: f"{v:g} %")
    ticks = [low * (high / low) ** (k / 4) for k in range(5)]
    x.ticks = lambda most: ticks
    out = [open_svg(name), frame(x, y, "time of a call at its slowest rank", "share of calls")]
    for i in range(body[0], body[-1] + 1):
        a, b = x(edges[i]), x(edges[i + 1])
        top = y(shares[i])
        tip = f"{time_text(edges[i])} to {time_text(edges[i + 1])}: {counts[i]} calls, {shares[i]:.2g} %"
        out.append(
            f'<rect class="bar" fill="var(--c{color})" x="{a + 0.5:.1f}" y="{top:.1f}" width="{max(b - a - 1, 1):.1f}" '
            f'height="{max(H - BOTTOM - top, 0):.1f}"><title>{esc(tip)}</title></rect>'
        )
    for k, (label, us) in enumerate(marks):
        at = x(us)
        anchor = "end" if at > W - RIGHT - 30 else "start"
        out.append(
            f'<line class="note" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP + 10 * (k % 2)}" y2="{H - BOTTOM}"/>'
            f'<text class="tick" x="{at + (3 if anchor == "start" else -3):.1f}" y="{TOP + 8 + 10 * (k % 2)}" '
            f'text-anchor="{anchor}">{esc(label)} {time_text(us)}<title>{time_text(us)}</title></text>'
        )
    out.append("</svg>")
    return "".join(out)


def legend(entries, dashed=()):
    """entries: [(label, colour)]; dashed: labels of floors."""
    out = ['<div class="legend">']
    for i, (label, color) in enumerate(entries):
        out.append(
            f'<span><svg viewBox="0 0 26 12" class="key"><line x1="1" x2="25" y1="6" y2="6" class="line" '
            f'stroke="var(--c{color})"/>{mark(MARKS[i % len(MARKS)], 13, 6, color, label)}</svg>{esc(label)}</span>'
        )
    for label in dashed:
        out.append(
            f'<span><svg viewBox="0 0 26 12" class="key"><line x1="1" x2="25" y1="6" y2="6" class="floor"/></svg>'
            f"{esc(label)}</span>"
        )
    return "".join(out) + "</div>"


def table(head, rows):
    cells = "".join(f"<th>{esc(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{esc(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
