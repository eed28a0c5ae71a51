# SPDX-License-Identifier: Apache-2.0
"""tests/layouts/lab.py: one training run after the other, and whether they have the same bits.

What decides is what the log and the weights' file hold: loss and gradient norm of every step in hexadecimal, validation loss in 17 digits,
and the sum of the bytes of the final weights. And that gyre-plan says, to the byte, what the ranks of each stage held at most, by kind.
"""
import hashlib
import json
import os
import subprocess

QUIET = "--sample-tokens 0 --peak-flops 1e9 --report none --progress none".split()
DEADLINE_S = 120
# options of gyre-train that gyre-plan has, too; it takes the same default for 0
PLANNED = ("tp", "cp", "cp-attention", "ep", "pp", "zero", "schedule", "chunks", "balance", "micro-batch", "recompute", "sequence-parallel",
           "grad-sequences", "sequence-parts", "lanes", "groups", "bucket-bytes", "threads", "matmul-type", "optimizer", "lora", "lora-on")


class Lab:
    """Runs of `steps` steps with the programs of `build`, whose files are in `folder`."""

    def __init__(self, build, folder, steps):
        self.build, self.folder, self.steps = build, folder, steps
        self.text = os.path.join(folder, "text")
        with open(self.text, "w", encoding="utf-8") as out:
            for i in range(3000):
                out.write(f"the {i * i % 97} quick brown foxes jump over {i % 13} lazy dogs\n")

    def train(self, ranks, words):
        """(run, None), or (None, error). `words`: the options of gyre-train."""
        log, weights = os.path.join(self.folder, "log"), os.path.join(self.folder, "weights")
        for path in (log, weights):
            if os.path.exists(path):
                os.remove(path)
        command = [self.build + "/bin/ucx-run", "-n", str(ranks), "--timeout", str(DEADLINE_S),
                   self.build + "/bin/gyre-train", "--data", self.text, "--steps", str(self.steps), *QUIET,
                   "--log", log, "--save", weights, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S + 20, check=False)
        if done.returncode:
            return None, f"exit {done.returncode}: {(done.stderr.strip() or done.stdout.strip())[-400:]}"
        with open(log, encoding="utf-8") as lines:
            lines = [json.loads(line) for line in lines]
        steps = [line for line in lines if "loss_hex" in line]
        if len(steps) != self.steps:
            return None, f"the log has {len(steps)} steps, not {self.steps}"
        with open(weights, "rb") as data:
            return Run(lines[0], steps, lines[-1]["memory"], hashlib.sha256(data.read()).hexdigest()), None

    def misplanned(self, run, ranks):
        """Where `gyre-plan memory --trainer` differs from what the run held, in words, or None."""
        given, model = run.options, os.path.join(self.folder, "model.json")
        with open(model, "w", encoding="utf-8") as out:
            json.dump(run.model, out)
        precision = given["precision"]
        flags = {"model": model, "threads": 1, "global-batch": given["batch"], "dtype": precision,
                 "dp": ranks // given["tp"] // given["cp"] // given["pp"],
                 "grad-dtype": precision if given["grad-type"] == "16" else "fp32",
                 **{name: int(given[name]) if given[name] is True else given[name] for name in PLANNED if given.get(name)}}
        command = [self.build + "/bin/gyre-plan", "memory", "--trainer", "--json", "-", *(["--keep-weights"] if given["keep-weights"] else []),
                   *(word for name, value in flags.items() for word in ("--" + name, str(value)))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if done.returncode:
            return f"{' '.join(command)}: {done.stderr.strip()[-400:]}"
        stages = json.loads(done.stdout[done.stdout.index("{"):])["trainer"]
        for s, plan in enumerate(stages):
            held = [dict(zip(run.memory["kinds"], one)) for one in run.memory["ranks"][ranks // len(stages) * s:][:ranks // len(stages)]]
            wrong = [f"{kind}: {size} bytes planned, {max(one[kind] for one in held)} held" for kind, size in plan.items()
                     if kind != "total" and max(one[kind] for one in held) != size]
            if wrong:
                return f"stage {s}: {', '.join(wrong)}"
        return None


class Run:
    """What the log says: `options` (the object that --config takes), `model`, `steps`, `memory`; `weights`: the sum of the file."""

    WHAT = ("loss", "gradient norm", "validation loss", "loss scale", "balance loss", "dropped choices", "batch", "z-loss",
            "z-loss of routers")

    def __init__(self, first, steps, memory, weights):
        self.options, self.model, self.steps, self.memory, self.weights = first["config"], first["model"], steps, memory, weights
        self.bits = [(s["loss_hex"], s["grad_norm_hex"], s.get("val_loss"), s["loss_scale"], s.get("balance_loss"), s.get("dropped"),
                      s.get("batch"), s.get("z_loss"), s.get("router_z_loss")) for s in steps]

    def differs(self, other):
        """The first difference in words, or None."""
        for i, (mine, theirs) in enumerate(zip(self.bits, other.bits)):
            for what, a, b in zip(self.WHAT, mine, theirs):
                if a != b:
                    return f"step {i + 1}: {what}: {a} there, {b} here"
        return None if self.weights == other.weights else "the final weights differ, loss and norms do not"
