#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# newest transformers, too: families that 4.46 lacks
"""Every architecture against PyTorch: a random small model of each, written as Hugging Face's files by Python, read by Gyre.
Loss and the gradients of all tensors are compared with modules written from the papers (torch_architectures.py, torch_layers.py)
and, where `transformers` is installed and has the class, with that class, too. Gyre's export of the same weights is compared bit
for bit, and loaded by `transformers` unmodified.

Both sides compute in double; gradients travel as float. Loss agrees to 1e-10 relative, each tensor's gradient to 1e-6 (norm of
the difference over norm of PyTorch's). `transformers` computes rotary angles, some softmaxes and ALiBi in float: 1e-6, 1e-5.
With TEST_LONG set the newest `transformers` has all families, too, and not only those that 4.46 lacks.
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("skipped: PyTorch is not installed (Debian: apt-get install python3-torch)")
    sys.exit(77)
try:
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
except ImportError:
    transformers = None

import hf_families
from tensor_files import read_folder, write_safetensors
from torch_architectures import architectures
from torch_layers import B, L, T, V

LOSS_TOLERANCE = 1e-10
TOLERANCE = 1e-6


def loss_of(logits, targets, prefix):
    """Mean over sequences of the mean over the positions that learn: those behind the prefix."""
    losses = F.cross_entropy(logits.reshape(B * T, -1), targets.reshape(-1), reduction="none").reshape(B, T)
    return torch.stack([losses[i, n:].mean() for i, n in enumerate(prefix or [0] * B)]).mean()


class Report:
    def __init__(self):
        self.failed = 0

    def check(self, what, error, limit):
        if not error <= limit:
            print(f"FAILED: {what}: {error:.2e}, more than {limit}")
            self.failed += 1
        return error


def relative(mine, reference):
    return ((mine.double() - reference).norm() / reference.norm().clamp_min(1e-300)).item()


def gradients_differ(report, label, mine, reference):
    """Largest relative difference. Biases of k have a gradient of zero but for rounding: none where neither has any."""
    worst = 0.0
    if mine.keys() != reference.keys():
        print(f"FAILED: {label}: tensors {sorted(mine.keys() ^ reference.keys())} are on one side only")
        report.failed += 1
    for name in mine.keys() & reference.keys():
        if reference[name].norm() < 1e-12 and mine[name].norm() < 1e-12:
            continue
        worst = max(worst, report.check(f"{label}: gradient of {name}", relative(mine[name], reference[name]), TOLERANCE))
    return worst


def run_gyre(folder):
    build = os.environ.get("B", "build")
    done = subprocess.run([os.path.join(build, "tests/model/mp_hf"), folder], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def compare(arch, folder, report):
    weights = arch.weights(hash_of(arch.name))
    generator = torch.Generator().manual_seed(5)
    tokens, targets = (torch.randint(2, V, (B, T), generator=generator) for _ in range(2))
    if arch.examples:
        tokens, targets = (torch.tensor([e[what] for e in arch.examples]) for what in ("tokens", "targets"))
    write_safetensors(os.path.join(folder, "model.safetensors"), weights)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(arch.config, file)
    with open(os.path.join(folder, "sequences.json"), "w", encoding="utf-8") as file:
        json.dump(arch.examples or [{"tokens": tokens[i].tolist(), "targets": targets[i].tolist(), "prefix": 0}
                                    for i in range(B)], file)
    answer = run_gyre(folder)
    mine = read_folder(os.path.join(folder, "gradients"))

    w = {name: tensor.double().requires_grad_() for name, tensor in weights.items()}
    balance = []
    loss = loss_of(arch.forward(w, tokens, arch.prefix, balance), targets, arch.prefix)
    auxiliary = arch.balance * sum(balance) if arch.balance else torch.zeros(())
    (loss + auxiliary).backward()
    error = report.check(f"{arch.name}: loss", abs(answer["loss"] - loss.item()) / loss.item(), LOSS_TOLERANCE)
    report.check(f"{arch.name}: auxiliary losses", abs(answer["auxiliary"] - auxiliary.item()), LOSS_TOLERANCE)
    worst = gradients_differ(report, arch.name, mine, {name: torch.zeros_like(t) if t.grad is None else t.grad
                                                        for name, t in w.items()})
    print(f"{arch.name:18} loss {loss.item():.6f}: {error:.1e}, {len(w)} gradients: {worst:.1e}")

    exported = read_folder(os.path.join(folder, "export"))
    if exported.keys() != weights.keys() or any(not torch.equal(exported[n], weights[n]) for n in weights):
        print(f"FAILED: {arch.name}: the export differs from what was imported")
        report.failed += 1
    if transformers and arch.hf and arch.config["model_type"] in transformers.CONFIG_MAPPING:
        compare_transformers(arch, folder, answer, mine, tokens, targets, report)


def stacked(gradients):
    """What `transformers` 5 names otherwise in memory than in files: experts are one tensor for all, gate and up one below
    the other, and GPT-NeoX's head is called as all others."""
    made = {"lm_head.weight": gradients["embed_out.weight"]} if "embed_out.weight" in gradients else {}
    count = len({name.split(".experts.")[1].split(".")[0] for name in gradients if ".experts." in name})
    for i in range(L):
        to = f"model.layers.{i}.mlp."
        for at, names in ((f"model.layers.{i}.block_sparse_moe.", ("w1", "w3", "w2")), (to, ("gate_proj", "up_proj", "down_proj"))):
            if at + "gate.weight" in gradients:
                gate, up, down = ([gradients[at + f"experts.{e}.{n}.weight"] for e in range(count)] for n in names)
                made[to + "gate.weight"] = gradients[at + "gate.weight"]
                made[to + "experts.gate_up_proj"] = torch.stack([torch.cat(pair) for pair in zip(gate, up)])
                made[to + "experts.down_proj"] = torch.stack(down)
    return made


def compare_transformers(arch, folder, answer, mine, tokens, targets, report):
    """`transformers` on the original files, and on Gyre's export, which it must load unmodified."""
    logits = []
    options = {"torch_dtype": torch.float64}
    if int(transformers.__version__.split(".")[0]) >= 5:
        options = {"dtype": torch.float64}
        if "num_experts_per_tok" in arch.config:
            options["experts_implementation"] = "eager"
    mine = {**mine, **stacked(mine)}
    for path in (folder, os.path.join(folder, "export")):
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            path, attn_implementation="eager", output_loading_info=True, **options)
        lacking = [name for name in info["missing_keys"] if "lm_head" not in name]
        if lacking or info["unexpected_keys"] or info["mismatched_keys"]:
            print(f"FAILED: {arch.name}: transformers could not use {path}: {info}")
            report.failed += 1
        model.eval()
        torch.set_default_dtype(torch.float64)  # transformers 4 makes a mask of the default type, with double's smallest number
        logits.append(model(tokens, use_cache=False).logits)
        torch.set_default_dtype(torch.float32)
        if path == folder:
            loss = loss_of(logits[0], targets, None)
            loss.backward()
            # rotary angles are float there, whatever the type
            error = report.check(f"{arch.name}: loss of transformers", abs(answer["loss"] - loss.item()) / loss.item(), 1e-6)
            worst, count = 0.0, 0
            for name, tensor in model.named_parameters():
                if name not in mine:
                    print(f"FAILED: {arch.name}: transformers has {name}, Gyre has not")
                    report.failed += 1
                elif tensor.grad.norm() > 1e-6: # k's bias has none, but for rounding of a softmax that is float there
                    worst = max(worst, report.check(f"{arch.name}: transformers' gradient of {name}",
                                                    relative(mine[name], tensor.grad), 1e-5))
                    count += 1
    saved = os.path.join(folder, "saved") # by transformers, in its own words
    model.float().save_pretrained(saved)
    os.link(os.path.join(folder, "sequences.json"), os.path.join(saved, "sequences.json"))
    if run_gyre(saved)["loss"] != answer["loss"]:
        print(f"FAILED: {arch.name}: Gyre has another loss with what transformers saved")
        report.failed += 1
    if not torch.equal(logits[0], logits[1]):
        print(f"FAILED: {arch.name}: transformers computes other logits from the export")
        report.failed += 1
    print(f"{'':18} transformers {transformers.__version__}: loss {error:.1e}, {count} gradients: {worst:.1e}; both load the other's")


def hash_of(name):
    return sum((i + 1) * ord(c) for i, c in enumerate(name))


def main():
    torch.set_num_threads(1)
    report = Report()
    forgotten = hf_families.model_types(False) - {"gyre"} - {arch.config["model_type"] for arch in architectures()}
    assert not forgotten, f"tests/model/torch_architectures.py lacks {', '.join(sorted(forgotten))}"
    for arch in architectures():
        if hf_families.NEW_ONLY and arch.config["model_type"] not in hf_families.NEW:
            continue
        with tempfile.TemporaryDirectory() as folder:
            compare(arch, folder, report)
    print(f"PyTorch {torch.__version__}: {'all agree' if report.failed == 0 else f'{report.failed} differ'}")
    if report.failed:
        return 1
    if not transformers:
        print("skipped: transformers is not installed (tools/setup references): this file's own modules agree, the rest did not run")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
