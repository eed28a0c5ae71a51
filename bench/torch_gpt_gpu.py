#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/torch_gpt_gpu.py [--batch B] [--steps N] [--layers L --hidden C --heads H --seq T --vocab V] [--device cuda|cpu]
    [--profile]

GPT-2's training step in PyTorch as a user would write it for speed: bfloat16 autocast, torch.compile, scaled_dot_product_attention,
fused AdamW, gradients clipped to 1. The default is GPT-2 124M with 16 sequences of 1024 tokens. The other side of gpu-check's
comparison, in the same run on the same GPU. Where torch.compile does not work (it wants a C compiler), it says so and goes on
without. Prints `tokens_per_second X`, of the median step of the second half.
--profile: a table of the last step's kernels, too.
"""
import argparse
import statistics
import time

import torch
import torch.nn.functional as F


class Block(torch.nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = torch.nn.LayerNorm(c), torch.nn.LayerNorm(c)
        self.qkv, self.proj = torch.nn.Linear(c, 3 * c), torch.nn.Linear(c, c)
        self.fc, self.out = torch.nn.Linear(c, 4 * c), torch.nn.Linear(4 * c, c)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(self.ln1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Model(torch.nn.Module):
    def __init__(self, o):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(o.vocab, o.hidden), torch.nn.Embedding(o.seq, o.hidden)
        self.blocks = torch.nn.ModuleList(Block(o.hidden, o.heads) for _ in range(o.layers))
        self.lnf = torch.nn.LayerNorm(o.hidden)
        for p in self.parameters():
            if p.dim() > 1:
                torch.nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.lnf(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def main():
    parser = argparse.ArgumentParser()
    for name, value in dict(batch=16, steps=30, layers=12, hidden=768, heads=12, seq=1024, vocab=50304).items():
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--profile", action="store_true")
    o = parser.parse_args()
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    cuda = o.device == "cuda"
    model = Model(o).to(o.device)
    step_model, how = (torch.compile(model), "torch.compile") if cuda else (model, "eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True) if cuda else torch.optim.AdamW(model.parameters(), lr=6e-4)
    tokens = torch.randint(o.vocab, (o.batch, o.seq + 1), device=o.device)
    times = []
    def loss_of():
        with torch.autocast(o.device, dtype=torch.bfloat16):
            return step_model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())

    profiler = torch.profiler.profile()
    for step in range(o.steps):
        if o.profile and step == o.steps - 1:
            profiler.start()
        since = time.perf_counter()
        try:
            loss = loss_of()
            loss.backward()
        except Exception as error:  # of whatever torch.compile calls
            if step > 0 or how == "eager":
                raise
            step_model, how = model, f"eager, as torch.compile failed ({type(error).__name__})"
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of()
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - since)
    if o.profile:
        profiler.stop()
        print(profiler.key_averages().table(sort_by=f"self_{o.device}_time_total", row_limit=40))
    print(f"torch {torch.__version__}, {how}, loss {loss.item():.4f}")
    print(f"tokens_per_second {o.batch * o.seq / statistics.median(times[len(times) // 2:]):.0f}")


main()
