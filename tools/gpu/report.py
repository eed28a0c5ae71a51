# SPDX-License-Identifier: Apache-2.0
"""tools/gpu/report.py: results of gpu-check and gpu-first, as text for people and as JSON.

Both files are complete after each result: whatever ends the program, earlier results stay. Verdicts: passed,
failed; met, not met (a figure against its goal); measured (a figure without a goal); ran (measured on the
emulator, whose figures mean nothing); skipped; not run (there was no time).
"""
import json
import os
import statistics
import time

RIGHT = ("passed", "met", "measured", "ran")


class Report:

    def __init__(self, out, name, head, quick, emulated):
        """head: what the JSON has besides the results."""
        os.makedirs(out, exist_ok=True)
        self.paths = {kind: os.path.join(out, f"{name}.{kind}") for kind in ("txt", "json", "log")}
        self.text = open(self.paths["txt"], "w", encoding="utf-8", errors="replace")
        self.head, self.quick, self.emulated = head, quick, emulated
        self.rows, self.complete, self.began = [], False, time.monotonic()
        self.write()

    def say(self, line=""):
        print(line, flush=True)
        print(line, file=self.text, flush=True)

    def count(self, *verdicts):
        return sum(row["verdict"] in verdicts for row in self.rows)

    def wrong(self):
        return len(self.rows) - self.count("skipped", *RIGHT)

    def spread(self):
        """A row for each figure that was measured more than once."""
        figures = {}
        for row in self.rows:
            if row["verdict"] in ("measured", "met", "not met") and row["figure"] is not None:
                figures.setdefault((row["name"], row["what"], row["unit"]), []).append(row["figure"])
        return [dict(name=name, what=what, unit=unit, runs=len(told), median=statistics.median(told),
                     min=min(told), max=max(told))
                for (name, what, unit), told in figures.items() if len(told) > 1]

    def write(self):
        told = dict(self.head, emulated=self.emulated, quick=self.quick,
                    seconds=round(time.monotonic() - self.began), right=self.count(*RIGHT),
                    wrong=self.wrong(), skipped=self.count("skipped"), complete=self.complete,
                    spread=self.spread(), checks=self.rows)
        with open(self.paths["json"] + ".new", "w", encoding="utf-8") as file:
            json.dump(told, file, indent=1)
        os.replace(self.paths["json"] + ".new", self.paths["json"])

    def result(self, run, name, what, verdict, figure=None, unit="", goal="", note="", between=None):
        """run: the command that this result is of, or None. between: least and most of several rounds."""
        if verdict in ("met", "not met") and (self.emulated or self.quick):
            verdict = "measured"
        if verdict == "measured" and self.quick:
            goal = ""
        if verdict == "measured" and self.emulated:
            verdict, figure, goal, note, between = "ran", None, "", "", None
        line = f"{verdict:<9} {name:<34} {what}"
        if figure is not None:
            line += f": {figure:.8g} {unit}"
        if between:
            line += f" [{between[0]:g} to {between[1]:g}]"
        if goal:
            line += f" (goal {goal})"
        self.say(line + (f"; {note}" if note else ""))
        least, most = between or (None, None)
        self.rows.append(dict(
            name=name, what=what, verdict=verdict, figure=figure, unit=unit, goal=goal or None, note=note,
            min=least, max=most, command=run.command if run else "",
            seconds=round(run.seconds, 1) if run else 0, log_line=run.line if run else None))
        if verdict == "failed" and run:
            self.why(run)
        self.write()

    def why(self, run):
        """The end of what the command printed. All of it is in the log."""
        self.say(f"          command: {run.command} ({os.path.basename(self.paths['log'])}, line {run.line})")
        for line in run.text.splitlines()[-15:]:
            self.say(f"          | {line}")

    def held(self, run, name, what, figure, unit, relation, goal, note="", between=None):
        """A figure against its goal; relation: "most" or "least"."""
        words = f"at {relation} {goal:g}"
        if figure is None:
            self.result(run, name, what, "failed", None, unit, f"{words} {unit}",
                        "the program printed no figure")
            return
        met = figure <= goal if relation == "most" else figure >= goal
        self.result(run, name, what, "met" if met else "not met", figure, unit, words, note, between)

    def none_wrong(self, run, name, what, wrong):
        """wrong: the number of wrong elements; None: nothing was compared."""
        if wrong is None:
            self.result(run, name, what, "failed", None, "wrong", "at most 0",
                        "the program printed no figure")
        else:
            self.result(run, name, what, "failed" if wrong else "passed", wrong, "wrong", "at most 0")

    def close(self, times):
        """The sums. times: the seconds of each part."""
        self.say()
        for row in self.spread():
            line = "spread    {name:<34} {what}: {median:.8g} {unit} [{min:.8g} to {max:.8g}], {runs} runs"
            self.say(line.format(**row))
        if times:
            self.say("seconds: " + ", ".join(f"{part} {seconds:.0f}" for part, seconds in times.items()))
        self.say(f"{self.count(*RIGHT)} right, {self.wrong()} wrong, {self.count('skipped')} skipped, in "
                 f"{time.monotonic() - self.began:.0f} s" +
                 (" (emulated: not seen on a GPU)" if self.emulated else ""))
        self.write()
