#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Ten AdamW steps of the C model against the same model in PyTorch, both in fp32: the loss and every gradient of every
step agree to 1e-4 relative (norm of the difference over norm of PyTorch's, per tensor; q, k, v of c_attn apart, except
k's bias, whose gradient is zero but for rounding).
"""
import json
import math
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

from tensor_files import read_safetensors

TOLERANCE = 1e-4


def read_tensors(path):
    return {name.replace("transformer.", "", 1): tensor for name, tensor in read_safetensors(path).items()}


def forward(w, job, tokens, targets):
    """GPT-2 as its paper and code have it; Conv1D weights are [in, out]."""
    batch, seq = tokens.shape
    hidden, heads = job["hidden"], job["heads"]

    def norm(x, name):
        return F.layer_norm(x, (hidden,), w[name + ".weight"], w[name + ".bias"], 1e-5)

    def conv(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    x = w["wte.weight"][tokens] + w["wpe.weight"][:seq]
    mask = torch.ones(seq, seq, dtype=torch.bool).tril()
    for layer in range(job["layers"]):
        at = f"h.{layer}."
        q, k, v = (part.reshape(batch, seq, heads, -1).transpose(1, 2)
                   for part in conv(norm(x, at + "ln_1"), at + "attn.c_attn").split(hidden, dim=2))
        scores = (q @ k.transpose(2, 3)) / math.sqrt(hidden // heads)
        attended = scores.masked_fill(~mask, float("-inf")).softmax(dim=3) @ v
        x = x + conv(attended.transpose(1, 2).reshape(batch, seq, hidden), at + "attn.c_proj")
        x = x + conv(F.gelu(conv(norm(x, at + "ln_2"), at + "mlp.c_fc"), approximate="tanh"), at + "mlp.c_proj")
    logits = norm(x, "ln_f") @ w["wte.weight"].T
    return F.cross_entropy(logits.reshape(batch * seq, -1), targets.reshape(-1))


def pieces(name, tensor):
    if ".c_attn." not in name:
        return {name: tensor}
    q, k, v = tensor.chunk(3, dim=-1)
    parts = {name + "[q]": q, name + "[v]": v}
    if not name.endswith("bias"):
        parts[name + "[k]"] = k
    return parts


def main():
    build = os.environ.get("B", "build")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.path.join(build, "tests/pipeline/mp_train"), folder], check=True)
        with open(os.path.join(folder, "steps.json"), encoding="utf-8") as file:
            job = json.load(file)
        start = read_tensors(os.path.join(folder, "start.safetensors"))
        grads = [read_tensors(os.path.join(folder, f"grad{i}.safetensors")) for i in range(len(job["steps"]))]
    w = {name: tensor.requires_grad_() for name, tensor in start.items()}
    optimizer = torch.optim.AdamW(
        [{"params": [t for t in w.values() if t.dim() == 2], "weight_decay": job["decay"]},
         {"params": [t for t in w.values() if t.dim() == 1], "weight_decay": 0.0}],
        betas=(job["beta1"], job["beta2"]), eps=job["epsilon"])
    worst = {"loss": (0.0, ""), "gradient": (0.0, ""), "norm": (0.0, "")}

    def note(kind, error, where):
        assert not math.isnan(error), where
        worst[kind] = max(worst[kind], (error, where))

    for i, step in enumerate(job["steps"]):
        batch = torch.tensor(step["batch"])
        optimizer.zero_grad()
        loss = forward(w, job, batch[:, :-1], batch[:, 1:])
        loss.backward()
        note("loss", abs(step["loss"] - loss.item()) / loss.item(), f"step {i}")
        assert grads[i].keys() == w.keys(), "the tensors' names are not GPT-2's"
        for name, tensor in w.items():
            mine = pieces(name, grads[i][name])
            for part, reference in pieces(name, tensor.grad).items():
                note("gradient", ((mine[part] - reference).norm() / reference.norm()).item(), f"step {i} {part}")
        norm = torch.nn.utils.clip_grad_norm_(list(w.values()), job["clip"]).item()
        note("norm", abs(step["norm"] - norm) / norm, f"step {i}")
        for group in optimizer.param_groups:
            group["lr"] = step["rate"]
        optimizer.step()
    print(f"{len(job['steps'])} steps, loss {job['steps'][0]['loss']:.4f} -> {job['steps'][-1]['loss']:.4f}, "
          f"PyTorch {torch.__version__}")
    for kind, (error, where) in worst.items():
        print(f"{kind}: largest relative difference {error:.1e} ({where})")
    if max(error for error, _ in worst.values()) > TOLERANCE:
        print(f"FAILED: more than {TOLERANCE}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
