# SPDX-License-Identifier: Apache-2.0
"""tests/model/torch_layers.py: the parts of a decoder in PyTorch, written from the papers; torch_architectures.py puts them
together. Tensors have few elements: B sequences of T tokens out of V, L layers of C channels in H heads of D."""
import math

import torch
import torch.nn.functional as F

B, T, V = 2, 12, 37
L, C, H = 2, 24, 6
D = C // H

ACTIVATIONS = {
    "gelu_new": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
    "gelu": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": torch.relu,
    "silu": lambda x: x * torch.sigmoid(x),
}


def layer_norm(x, w, name, eps=1e-5):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], eps)


def rms_norm(x, w, name, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * w[name + ".weight"]


def linear(x, w, name):
    """[out, in], as torch.nn.Linear."""
    y = x @ w[name + ".weight"].T
    return y + w[name + ".bias"] if name + ".bias" in w else y


def conv(x, w, name):
    """[in, out], as GPT-2."""
    y = x @ w[name + ".weight"]
    return y + w[name + ".bias"] if name + ".bias" in w else y


def scaled(frequency, theta, c):
    """Frequencies of a rope_scaling, and what cosines and sines are multiplied by."""
    turns, pairs = c.get("original_max_position_embeddings", T) * frequency / (2 * math.pi), len(frequency)
    if c["rope_type"] == "llama3":
        share = (c["high_freq_factor"] - turns) / (c["high_freq_factor"] - c["low_freq_factor"])
    elif c["rope_type"] == "yarn":
        low, high = (pairs * math.log(T / (n * 2 * math.pi)) / math.log(theta) for n in (c["beta_fast"], c["beta_slow"]))
        if c.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * pairs - 1)
        share = (torch.arange(pairs, dtype=frequency.dtype) - low) / (high - low)
    else:
        share = torch.full_like(frequency, 1.0 if c["rope_type"] == "linear" else 0.0) # dynamic: beyond T only
    share = share.clamp(0, 1).to(frequency.dtype)
    times = [1 + 0.1 * c.get(name, default) * math.log(c["factor"]) if c["rope_type"] == "yarn" else 1
             for name, default in (("mscale", 1), ("mscale_all_dim", 0))]
    return frequency * (share / c["factor"] + 1 - share), times[0] / times[1]


def rotate(x, dim, theta=10000.0, neighbours=False, positions=None, scaling=None):
    """x [B, H, T, D]: the first dim channels turn; positions [B, T] if they do not count up."""
    half, times = dim // 2, 1
    positions = torch.arange(T) if positions is None else torch.tensor(positions)[:, None]
    frequency = theta ** (-torch.arange(half, dtype=x.dtype) / half)
    if scaling:
        frequency, times = scaled(frequency, theta, scaling)
    angle = positions.to(x.dtype)[..., None] * frequency
    cos, sin = times * angle.cos(), times * angle.sin()
    a, b = (x[..., 0:dim:2], x[..., 1:dim:2]) if neighbours else (x[..., :half], x[..., half:dim])
    p, q = a * cos - b * sin, b * cos + a * sin
    turned = torch.stack((p, q), -1).flatten(-2) if neighbours else torch.cat((p, q), -1)
    return torch.cat((turned, x[..., dim:]), -1)


def alibi_slopes(heads):
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(slopes, dtype=torch.float64)


def heads_of(x, heads):
    """[B, T, H D] -> [B, H, T, D]"""
    return x.reshape(B, T, heads, -1).transpose(1, 2)


def attend(q, k, v, prefix=None, slopes=None, window=None, scale=None, cap=None, sinks=None):
    """[B, H, T, D] each; prefix: positions of each sequence that see one another; window: the last that are seen; sinks [H]."""
    if k.shape[1] < q.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(scale or q.shape[-1])
    scores = cap * torch.tanh(scores / cap) if cap else scores
    if slopes is not None:
        distance = torch.arange(T)[None, :] - torch.arange(T)[:, None]
        scores = scores + slopes[:, None, None] * distance
    mask = torch.ones(T, T, dtype=torch.bool).tril().repeat(B, 1, 1, 1)
    if window:
        mask = mask.triu(1 - window)
    for i, n in enumerate(prefix or []):
        mask[i, 0, :n, :n] = True
    scores = scores.masked_fill(~mask, float("-inf"))
    if sinks is not None:
        scores = torch.cat((scores, sinks.reshape(1, -1, 1, 1).expand(B, -1, T, 1)), 3)
    return (scores.softmax(3)[..., :T] @ v).transpose(1, 2).reshape(B, T, -1)


def experts(x, c, gate, run, balance):
    """Mixtral's router for every sequence apart, without limits on an expert's positions. c["z"]: what its z-loss weighs."""
    logits = x @ gate
    probabilities = logits.softmax(-1)
    weights, choice = probabilities.topk(c["k"], -1)
    if c.get("shares", True):
        weights = weights / weights.sum(-1, keepdim=True)
    y = torch.zeros_like(x)
    for e in range(c["experts"]):
        share = (weights * (choice == e)).sum(-1)
        y = y + share[..., None] * run(e, x)
    chosen = F.one_hot(choice, c["experts"]).to(x.dtype).sum(2).mean(1)
    if c.get("z"):
        balance.append(c["z"] * logits.logsumexp(-1).square().mean())
    balance.append((c["experts"] * chosen * probabilities.mean(1)).sum(-1).mean())
    return y
