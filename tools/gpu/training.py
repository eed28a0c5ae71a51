# SPDX-License-Identifier: Apache-2.0
"""tools/gpu/training.py: the checks that train: GPT-2 and PyTorch's, losses, layouts, kernels of a step."""
import csv
import json
import os
import re
import shutil
import statistics

from base import Base

METRICS = ("gpu__time_duration.sum", "dram__bytes.sum")  # of ncu
NO_TORCH = "python3 here has no PyTorch 2 that sees a GPU"
LAYOUTS = ("2 --tp 2", "2 --tp 2 --sequence-parallel", "2 --pp 2", "2 --dp 2", "2 --dp 2 --zero 3",
           "4 --tp 2 --dp 2 --zero 1", "4 --tp 2 --pp 2", "4 --dp 4 --zero 2")
QUICK_LAYOUTS = {"fp32": (1, 4), "bf16": (0, ), "experts": (1, )}  # places in LAYOUTS
EXPERT_LAYOUTS = (1, 5, 6)


class Training(Base):

    def peak(self):
        """Dense bf16 operations per second, of NVIDIA's data sheets."""
        known = (("H100.*PCIe", 756e12), ("H[12]00", 989.4e12), ("A100", 312e12))
        return next((peak for name, peak in known if re.search(name, self.device)), 1e12)

    def train(self, n, limit, options, *words, before=()):
        """-> the run, the steps in its log, and the last value of each key. before: a command to run it."""
        path = f"{self.work}/train.log"
        if os.path.exists(path):
            os.remove(path)
        command = (*before, f"{self.here}/bin/gyre-train", "--data", f"{self.here}/data/text", "--log", path,
                   *"--report none --progress none --sample-tokens 0".split(), *options.split(), *words)
        run = self.run(limit, *command) if n == 1 else self.ranks(n, limit, *command, log=True)
        steps, last = [], {}
        try:
            with open(path, encoding="utf-8") as file:
                for line in file:
                    told = json.loads(line)
                    last.update(told)
                    if "step" in told and "loss" in told:
                        steps.append(told)
        except (OSError, ValueError):  # none was written, or its last line is not whole
            pass
        return run, steps, last

    @staticmethod
    def median(steps, key):
        """Of the second half of the steps."""
        values = [step[key] for step in steps if key in step]
        return statistics.median_low(values[len(values) // 2:]) if values else None

    def gpt2_shape(self, vocab):
        shape = self.size("--layers 12 --hidden 768 --heads 12 --seq 1024",
                          "--layers 1 --hidden 32 --heads 2 --seq 16")
        return f"{shape} --vocab {vocab} --batch {self.size(16, 2)}"

    def gpt2_options(self, steps, vocab):
        batch = self.size(16, 2)
        return (
            f"--device cuda --precision bf16 {self.gpt2_shape(vocab)} --micro-batch {batch} --leaves 1 "
            f"--grad-sequences {batch} --steps {steps} --time-limit 70 --lr 0.0006 --warmup 10 "
            f"--eval-every 0 --eval-sequences 1 "
            f"--peak-flops {self.peak():g}")

    def gpt2_rate(self, name, what, steps, vocab):
        """Tokens per second of one run; None if it has failed."""
        run, log, _ = self.train(1, 90, self.gpt2_options(steps, vocab))
        if not self.well(run, name, what):
            return None
        rate, mfu = self.median(log, "tokens_per_second"), self.median(log, "mfu")
        if rate is None:
            self.result(run, name, what, "failed", note="its log has no steps")
            return None
        self.result(run, name, what, "measured", rate, "tokens/s")
        if self.peak() != 1e12 and name == "gpt2":
            self.held(run, name, f"{what}, MFU", None if mfu is None else round(100 * mfu, 1), "%", "least",
                      50, f"of {self.peak():g} operations per second")
        return rate

    def gpt2(self, _):
        """A step of GPT-2 124M."""
        what = self.size("GPT-2 124M, bf16, sequences of 1024, 16 per step", "a step of GPT-2's kind")
        self.tokens = self.gpt2_rate("gpt2", what, self.size(24, 4), self.size(50304, 256))

    def gpt2_torch(self, name):
        """PyTorch's step, then Gyre's once more: the clock may have changed."""
        what, first = "the same with PyTorch and torch.compile", self.tokens
        if first is None:
            self.gpt2(name)
            first = self.tokens
        run = self.torch() if first else None
        if run is None:
            note = NO_TORCH if first else "gpt2 itself has failed"
            self.result(None, name, what, "skipped", note=note)
            return
        if not self.well(run, name, what):
            return
        rate = re.search(r"^tokens_per_second ([\d.]+)", run.text, re.M)
        theirs = float(rate[1]) if rate else None
        how = re.search(r"^(torch .*), loss ", run.text, re.M)
        self.result(run, name, f"the same with {how[1]}" if how else what, "measured", theirs, "tokens/s")
        self.gpt2(name)
        if theirs and self.tokens:
            both = sorted((first, self.tokens))
            self.held(run, name, "GPT-2 124M, Gyre's rate", sum(both) / 2, "tokens/s", "least", theirs,
                      "the mean of two runs, of which PyTorch's is in between", both)

    def torch(self, *options):
        """PyTorch's side of gpt2, with the libraries that PyTorch finds by itself. None: it is not here."""
        python, env = shutil.which("python3"), {"LD_LIBRARY_PATH": self.path_before}
        sees = "import sys, torch; sys.exit(not (torch.cuda.is_available() and hasattr(torch, 'compile')))"
        if self.emulated or not python or self.run(60, python, "-c", sees, env=env).status != 0:
            return None
        shape = self.gpt2_shape(self.size(50304, 256))
        return self.run(150, python, f"{self.here}/bench/torch_gpt_gpu.py", *shape.split(), *options, env=env)

    def gpt2_odd(self, name):
        """GPT-2's own vocabulary: rows of logits that no 16 bytes divide."""
        what = self.size("GPT-2 124M with its 50257 tokens, unpadded", "the same with an odd vocabulary")
        self.gpt2_rate(name, what, self.size(12, 4), self.size(50257, 257))

    def loss(self, name):
        """Losses in fp32, of the GPU and of the CPU."""
        shape = self.size(
            "--layers 4 --hidden 192 --heads 4 --seq 128 --batch 8 --steps 50 --eval-sequences 8",
            "--layers 1 --hidden 32 --heads 2 --seq 16 --batch 2 --steps 5 --eval-sequences 2")
        what, losses, run = f"loss in fp32, the GPU beside the CPU, {self.size(50, 5)} steps", [], None
        for device in ("cpu", "cuda"):
            run, steps, _ = self.train(1, 90, f"--device {device} {shape} --eval-every 0")
            if not self.well(run, name, f"{what}: {device}"):
                return
            losses.append([step["loss"] for step in steps])
        far = max((abs(a - b) for a, b in zip(*losses)), default=None)
        right = len(losses[0]) == len(losses[1]) == self.size(50, 5) and far <= 0.001
        self.result(run, name, what, "passed" if right else "failed", far, "largest difference",
                    "at most 0.001")

    def layouts(self, name):
        """Losses and weights of each layout are those of one rank, bit for bit. The micro-batches are the
        same, as cuBLASLt may add in another order for another number of rows."""
        size, kind, words = self.size, name.partition("-")[2], ()
        shape = (f"--device cuda --batch {size(8, 4)} --micro-batch 2 --steps {size(8, 2)} --eval-every 0 "
                 f"--eval-sequences 2 --precision {'fp32' if kind == 'fp32' else 'bf16'} ")
        if kind == "experts":
            words = ("--model", f"{self.work}/experts.json")
            with open(words[1], "w", encoding="utf-8") as file:
                json.dump(
                    dict(model_type="gyre", vocab=256, seq=size(128, 8), layers=size(4, 2),
                         hidden=size(128, 32), heads=4, ffn=size(128, 32), gated=True, act="silu", leaves=4,
                         experts=8, top_k=2, balance=0.01), file)
        else:
            shape += size("--layers 4 --hidden 128 --heads 4 --seq 128",
                          "--layers 2 --hidden 32 --heads 4 --seq 8")

        def trained(n, limit, what, layout):
            run, steps, last = self.train(n, limit, f"{shape} {layout}", *words)
            if not self.well(run, name, what):
                return run, None
            return run, ([(step["step"], step.get("loss_hex")) for step in steps], last.get("weights_hash"))

        run, alone = trained(1, 30, f"{kind}, one rank", "")
        if alone and not alone[1]:
            self.result(run, name, f"{kind}, one rank", "failed", note="its log has no hash of the weights")
        if not alone or not alone[1]:
            return
        usual = EXPERT_LAYOUTS if kind == "experts" else range(len(LAYOUTS))
        for at in QUICK_LAYOUTS[kind] if self.quick else usual:
            n, _, layout = LAYOUTS[at].partition(" ")
            what = f"{kind}, {n} ranks, {layout}"
            run, bits = trained(int(n), 40, what, layout)
            if bits:
                same = bits == alone
                self.result(run, name, f"{what}: the bits of one", "passed" if same else "failed",
                            note="" if same else "losses or weights differ")

    def demo(self, name):
        """Something is learned."""
        what = f"a small GPT learns this bundle's text, {self.size('bf16', 'fp32')}"
        run, _, last = self.train(
            1, 60, "--device cuda --time-limit 45 " + self.size(
                "--precision bf16 --layers 4 --hidden 256 --heads 4 --seq 256 --batch 16 --steps 300 "
                "--lr 0.003 --warmup 40 --eval-sequences 64",
                "--precision fp32 --layers 1 --hidden 32 --heads 4 --seq 16 --batch 8 --steps 20 --lr 0.02 "
                "--warmup 2 --eval-sequences 8"))
        if self.well(run, name, what):
            loss, entropy = last.get("val_loss") or 0, last.get("unigram_entropy") or 0
            learned = 0 < loss < self.size(0.8, 1.3) * entropy
            self.result(run, name, what, "passed" if learned else "failed",
                        note=f"validation loss {loss}; the entropy of single bytes is {entropy}")

    def profile(self, name):
        """The kernels of one step of GPT-2. Never with ranks of one process: ncu runs kernel after kernel."""
        what, ncu = "kernels of the first step of GPT-2, by ncu", shutil.which("ncu")
        if not ncu:
            self.result(None, name, what, "skipped", note="ncu is not on this machine")
            return
        run, _, _ = self.train(
            1, 200, self.gpt2_options(1, self.size(50304, 256)),
            before=(ncu, "--clock-control", "none", "--print-units", "base", "--csv", "--metrics",
                    ",".join(METRICS)))
        if not self.well(run, name, what):
            return
        kernels = {}  # name: [launches, ns, bytes]
        table = csv.DictReader(line for line in run.text.splitlines() if line.startswith('"'))
        for row in table:
            if row.get("Metric Name") in METRICS:
                # without parameters, and without casts in arguments of templates
                kernel = re.sub(r"\([\w: ]+\)(?=[\w-])", "", row["Kernel Name"]).partition("(")[0]
                one = kernels.setdefault(kernel, [0, 0, 0])
                which = METRICS.index(row["Metric Name"])
                one[0] += which == 0
                one[1 + which] += float(row["Metric Value"].replace(",", ""))
        if not kernels:
            self.result(run, name, what, "failed", note="ncu printed no table of kernels")
            return
        total = sum(ns for _, ns, _ in kernels.values())
        self.result(run, name, what, "measured", round(total / 1e3, 1), "us")
        for kernel, (launches, ns, moved) in sorted(kernels.items(), key=lambda item: -item[1][1])[:40]:
            self.result(
                run, name, kernel, "measured", round(ns / 1e3, 1), "us",
                note=f"{launches} launches, {100 * ns / total:.1f} % of the time, {moved / 1e6:.1f} MB, "
                f"{moved / max(ns, 1):.0f} GB/s")

    def torch_profile(self, name):
        """The kernels of PyTorch's step, in the log."""
        what, run = "kernels of PyTorch's step, by its profiler", self.torch("--profile")
        if run is None:
            self.result(None, name, what, "skipped", note=NO_TORCH)
        elif self.well(run, name, what):
            self.result(run, name, what, "passed", note="the table is in the log")
