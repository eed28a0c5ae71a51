#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/torch_gpt.py demo|124M [--compile] [--bf16] WEIGHTS TOKENS STEPS: the step of bench/plain_gpt.c with PyTorch's own modules, on
two threads, with its compiler, and with its autocast to bfloat16. Prints PyTorch's version first."""
import struct
import sys
import time

import torch
import torch.nn.functional as F

from train import SHAPES # pylint: disable=wrong-import-position

SHAPE = next(shape for shape in SHAPES if shape.name == sys.argv[1])
L, H, C, T, B, V = SHAPE.layers, SHAPE.heads, SHAPE.channels, SHAPE.seq, SHAPE.batch, SHAPE.vocab


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = torch.nn.LayerNorm(C), torch.nn.LayerNorm(C)
        self.qkv, self.proj = torch.nn.Linear(C, 3 * C), torch.nn.Linear(C, C)
        self.fc, self.out = torch.nn.Linear(C, 4 * C), torch.nn.Linear(4 * C, C)
        self.register_buffer("mask", torch.ones(T, T).tril().bool())

    def attention(self, x):
        q, k, v = (part.view(B, T, H, C // H).transpose(1, 2) for part in self.qkv(x).split(C, 2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(2, 3) / (C // H) ** 0.5).masked_fill(~self.mask, float("-inf"))
            y = scores.softmax(3) @ v
        return self.proj(y.transpose(1, 2).reshape(B, T, C))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(L))
        self.wte, self.wpe, self.lnf = torch.nn.Embedding(V, C), torch.nn.Embedding(T, C), torch.nn.LayerNorm(C)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.blocks:
            x = block(x)
        logits = self.lnf(x) @ self.wte.weight.t()
        return F.cross_entropy(logits.view(-1, V), targets.reshape(-1))

    def load(self, path):
        """In the order of plain_gpt.c; its matrices are [in, out]."""
        with open(path, "rb") as data:
            rest = torch.frombuffer(bytearray(data.read()), dtype=torch.float32)
        rows = []
        for b in self.blocks:
            rows += [b.ln1.weight, b.ln1.bias, b.qkv.weight, b.qkv.bias, b.proj.weight, b.proj.bias, b.ln2.weight,
                     b.ln2.bias, b.fc.weight, b.fc.bias, b.out.weight, b.out.bias]
        with torch.no_grad():
            for row in rows + [self.wte.weight, self.wpe.weight, self.lnf.weight, self.lnf.bias]:
                part, rest = rest[:row.numel()], rest[row.numel():]
                turned = row.dim() == 2 and row is not self.wte.weight and row is not self.wpe.weight
                row.copy_(part.view(row.shape[::-1]).t() if turned else part.view(row.shape))


def main():
    torch.set_num_threads(2)
    weights, tokens, steps = sys.argv[-3:]
    steps = int(steps)
    with open(tokens, "rb") as data:
        tokens = torch.tensor(struct.unpack(f"{steps * B * (T + 1)}i", data.read(4 * steps * B * (T + 1)))).view(steps, B, T + 1)
    model = Model()
    model.load(weights)
    step = torch.compile(model) if "--compile" in sys.argv else model
    print(torch.__version__)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0)
    for batch in tokens:
        since = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled="--bf16" in sys.argv):
            loss = step(batch[:, :-1], batch[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"{loss.item():.6f} {time.perf_counter() - since:.6f}")


main()
