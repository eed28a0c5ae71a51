#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every architecture against PyTorch: a random small model of each, written as Hugging Face's files by Python, read by Gyre.
Loss and the gradients of all tensors are compared with modules written here from the papers and, where `transformers` is
installed and has the class, with that class, too. Gyre's export of the same weights is compared bit for bit, and loaded
by `transformers` unmodified.

Both sides compute in double; gradients travel as float. Loss agrees to 1e-10 relative, each tensor's gradient to 1e-6 (norm of
the difference over norm of PyTorch's). `transformers` computes rotary angles, some softmaxes and ALiBi in float: 1e-6, 1e-5.

Longer than 600 lines: each architecture is written out here a second time, and they share the layers.
"""
import json
import math
import os
import struct
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

LOSS_TOLERANCE = 1e-10
TOLERANCE = 1e-6
B, T, V = 2, 12, 37


# ---- files ---------------------------------------------------------------------------------------------------------

def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        size = 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.to(torch.float32).contiguous().numpy().tobytes())


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32)
        tensors[name] = values.reshape(entry["shape"]).clone()
    return tensors


def read_folder(folder):
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return read_safetensors(os.path.join(folder, "model.safetensors"))
    with open(index, encoding="utf-8") as file:
        names = set(json.load(file)["weight_map"].values())
    return {k: v for name in sorted(names) for k, v in read_safetensors(os.path.join(folder, name)).items()}


# ---- the parts of a decoder, as the papers have them ------------------------------------------------------------------

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
    """Mixtral's router for every sequence apart, without limits on an expert's positions."""
    probabilities = (x @ gate).softmax(-1)
    weights, choice = probabilities.topk(c["k"], -1)
    weights = weights / weights.sum(-1, keepdim=True)
    y = torch.zeros_like(x)
    for e in range(c["experts"]):
        share = (weights * (choice == e)).sum(-1)
        y = y + share[..., None] * run(e, x)
    chosen = F.one_hot(choice, c["experts"]).to(x.dtype).sum(2).mean(1)
    balance.append((c["experts"] * chosen * probabilities.mean(1)).sum(-1).mean())
    return y


# ---- architectures: config.json, tensors, forward ----------------------------------------------------------------------

def normal(generator, *shape, mean=0.0):
    return (mean + 0.3 * torch.randn(*shape, generator=generator)).to(torch.float32)


class Architecture:
    """name, config, shapes {tensor: shape}; a tensor named ..norm..weight or ln is drawn around 1. examples: what is learned, where
    that is not the next token of random ones."""
    def __init__(self, name, config, shapes, forward, examples=None, balance=0.0, hf=True):
        self.name, self.config, self.shapes, self.forward = name, config, shapes, forward
        self.examples, self.balance, self.hf = examples, balance, hf
        self.prefix = [e["prefix"] for e in examples] if examples else None

    def weights(self, seed):
        generator = torch.Generator().manual_seed(seed)
        gains = ("norm", "ln_", "ln1", "ln2")
        return {name: normal(generator, *shape, mean=1.0 if len(shape) == 1 and name.endswith("weight") and
                             any(g in name for g in gains) else 0.0) for name, shape in self.shapes.items()}


def vector(name, n):
    return {name + ".weight": (n,), name + ".bias": (n,)}


def matrix(name, rows, columns, bias):
    return {name + ".weight": (rows, columns), name + ".bias": (bias,)}


L, C, H = 2, 24, 6
D = C // H


def gpt2_shapes(hidden=4 * C, gated=False):
    shapes = {"transformer.wte.weight": (V, C), "transformer.wpe.weight": (T, C), **vector("transformer.ln_f", C)}
    wide = 2 * hidden if gated else hidden
    for i in range(L):
        at = f"transformer.h.{i}."
        shapes.update({**vector(at + "ln_1", C), **matrix(at + "attn.c_attn", C, 3 * C, 3 * C),
                       **matrix(at + "attn.c_proj", C, C, C), **vector(at + "ln_2", C),
                       **matrix(at + "mlp.c_fc", C, wide, wide), **matrix(at + "mlp.c_proj", hidden, C, C)})
    return shapes


def gpt2(activation, top_query=False):
    def forward(w, tokens, prefix, balance):
        x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"]
        for i in range(L):
            at = f"transformer.h.{i}."
            y = layer_norm(x, w, at + "ln_1")
            q, k, v = conv(y, w, at + "attn.c_attn").split(C, 2)
            if top_query and i == L - 1:
                table = w[at + "attn.wqe.weight"].expand(B, T, C)
                q = conv(table, w, at + "attn.c_attn").split(C, 2)[0]
            x = x + conv(attend(heads_of(q, H), heads_of(k, H), heads_of(v, H)), w, at + "attn.c_proj")
            y = ACTIVATIONS[activation](conv(layer_norm(x, w, at + "ln_2"), w, at + "mlp.c_fc"))
            x = x + conv(y, w, at + "mlp.c_proj")
        return layer_norm(x, w, "transformer.ln_f") @ w["transformer.wte.weight"].T
    return forward


def opt(w, tokens, prefix, balance):
    x = w["model.decoder.embed_tokens.weight"][tokens] + w["model.decoder.embed_positions.weight"][2:2 + T]
    for i in range(L):
        at = f"model.decoder.layers.{i}."
        y = layer_norm(x, w, at + "self_attn_layer_norm")
        q, k, v = (heads_of(linear(y, w, at + f"self_attn.{n}_proj"), H) for n in "qkv")
        x = x + linear(attend(q, k, v), w, at + "self_attn.out_proj")
        y = torch.relu(linear(layer_norm(x, w, at + "final_layer_norm"), w, at + "fc1"))
        x = x + linear(y, w, at + "fc2")
    return layer_norm(x, w, "model.decoder.final_layer_norm") @ w["model.decoder.embed_tokens.weight"].T


def opt_shapes():
    shapes = {"model.decoder.embed_tokens.weight": (V, C), "model.decoder.embed_positions.weight": (T + 2, C),
              **vector("model.decoder.final_layer_norm", C)}
    for i in range(L):
        at = f"model.decoder.layers.{i}."
        shapes.update({**vector(at + "self_attn_layer_norm", C), **vector(at + "final_layer_norm", C),
                       **matrix(at + "fc1", 2 * C, C, 2 * C), **matrix(at + "fc2", C, 2 * C, C)})
        for n in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes.update(matrix(at + "self_attn." + n, C, C, C))
    return shapes


def by_head(x):
    """BLOOM's and GPT-NeoX's q, k, v: [B, T, H, 3, D]"""
    return (x.reshape(B, T, H, 3, D)[:, :, :, i].transpose(1, 2) for i in range(3))


def bloom(w, tokens, prefix, balance):
    x = layer_norm(w["transformer.word_embeddings.weight"][tokens], w, "transformer.word_embeddings_layernorm")
    for i in range(L):
        at = f"transformer.h.{i}."
        q, k, v = by_head(linear(layer_norm(x, w, at + "input_layernorm"), w, at + "self_attention.query_key_value"))
        x = x + linear(attend(q, k, v, slopes=alibi_slopes(H)), w, at + "self_attention.dense")
        y = ACTIVATIONS["gelu_new"](linear(layer_norm(x, w, at + "post_attention_layernorm"), w, at + "mlp.dense_h_to_4h"))
        x = x + linear(y, w, at + "mlp.dense_4h_to_h")
    return layer_norm(x, w, "transformer.ln_f") @ w["transformer.word_embeddings.weight"].T


def neox(w, tokens, prefix, balance):
    x = w["gpt_neox.embed_in.weight"][tokens]
    for i in range(L):
        at = f"gpt_neox.layers.{i}."
        q, k, v = by_head(linear(layer_norm(x, w, at + "input_layernorm"), w, at + "attention.query_key_value"))
        attended = linear(attend(rotate(q, 2), rotate(k, 2), v), w, at + "attention.dense")
        y = ACTIVATIONS["gelu"](linear(layer_norm(x, w, at + "post_attention_layernorm"), w, at + "mlp.dense_h_to_4h"))
        x = x + attended + linear(y, w, at + "mlp.dense_4h_to_h")
    return layer_norm(x, w, "gpt_neox.final_layer_norm") @ w["embed_out.weight"].T


def joined_shapes(layer, attention, top):
    shapes = dict(top)
    for i in range(L):
        at = layer % i
        shapes.update({**vector(at + "input_layernorm", C), **vector(at + "post_attention_layernorm", C),
                       **matrix(at + attention + ".query_key_value", 3 * C, C, 3 * C),
                       **matrix(at + attention + ".dense", C, C, C), **matrix(at + "mlp.dense_h_to_4h", 4 * C, C, 4 * C),
                       **matrix(at + "mlp.dense_4h_to_h", C, 4 * C, C)})
    return shapes


def gemma(eps, kv):
    """LLaMA with gains that 1 is added to, larger embeddings, and GELU."""
    def forward(w, tokens, prefix, balance):
        w = {name: 1 + t if "norm" in name else t for name, t in w.items()}
        return llama(eps, kv, act="gelu_new", scale=math.sqrt(C))(w, tokens, prefix, balance)
    return forward


def gemma2(eps, kv, c):
    """Gemma with four norms in a layer, windows in turn, soft caps and its own scale of queries; Gemma 3 has norms of q and k,
    and in layers with a window rotary positions of their own."""
    def forward(w, tokens, prefix, balance):
        w = {name: 1 + t if "norm" in name else t for name, t in w.items()}
        x = math.sqrt(C) * w["model.embed_tokens.weight"][tokens]
        for i in range(L):
            at = f"model.layers.{i}."
            y = rms_norm(x, w, at + "input_layernorm", eps)
            q, k, v = (heads_of(linear(y, w, at + f"self_attn.{n}_proj"), H if n == "q" else kv) for n in "qkv")
            if at + "self_attn.q_norm.weight" in w:
                q, k = rms_norm(q, w, at + "self_attn.q_norm", eps), rms_norm(k, w, at + "self_attn.k_norm", eps)
            turn = {"theta": c.get("rope_theta", 10000.0), "scaling": c.get("rope_scaling")} if i % 2 else {}
            y = attend(rotate(q, D, **turn), rotate(k, D, **turn), v, window=None if i % 2 else c["sliding_window"],
                       scale=c["query_pre_attn_scalar"], cap=c.get("attn_logit_softcapping"))
            x = x + rms_norm(linear(y, w, at + "self_attn.o_proj"), w, at + "post_attention_layernorm", eps)
            y = rms_norm(x, w, at + "pre_feedforward_layernorm", eps)
            y = ACTIVATIONS["gelu_new"](linear(y, w, at + "mlp.gate_proj")) * linear(y, w, at + "mlp.up_proj")
            x = x + rms_norm(linear(y, w, at + "mlp.down_proj"), w, at + "post_feedforward_layernorm", eps)
        cap = c["final_logit_softcapping"]
        return cap * torch.tanh(rms_norm(x, w, "model.norm", eps) @ w["model.embed_tokens.weight"].T / cap)
    return forward


def gemma2_shapes(norms=False):
    more = {f"model.layers.{i}.{n}_feedforward_layernorm.weight": (C,) for i in range(L) for n in ("pre", "post")}
    return {**llama_shapes(2, 20, tied=True, norms=norms), **more}


def olmo2(eps, kv):
    """Norms of what attention and MLP give, and of q and k over all heads."""
    def forward(w, tokens, prefix, balance):
        x = w["model.embed_tokens.weight"][tokens]
        for i in range(L):
            at = f"model.layers.{i}."
            q, k = (rms_norm(linear(x, w, at + f"self_attn.{n}_proj"), w, at + f"self_attn.{n}_norm", eps) for n in "qk")
            v = heads_of(linear(x, w, at + "self_attn.v_proj"), kv)
            y = attend(rotate(heads_of(q, H), D), rotate(heads_of(k, kv), D), v)
            x = x + rms_norm(linear(y, w, at + "self_attn.o_proj"), w, at + "post_attention_layernorm", eps)
            y = ACTIVATIONS["silu"](linear(x, w, at + "mlp.gate_proj")) * linear(x, w, at + "mlp.up_proj")
            x = x + rms_norm(linear(y, w, at + "mlp.down_proj"), w, at + "post_feedforward_layernorm", eps)
        return rms_norm(x, w, "model.norm", eps) @ w["lm_head.weight"].T
    return forward


def olmo2_shapes():
    names = {"post_attention": "post_feedforward", "input": "post_attention"}
    shapes = {}
    for name, shape in llama_shapes(2, 20, norms=True).items():
        key = next((n for n in names if f".{n}_layernorm" in name), None)
        shapes[name.replace(key, names[key]) if key else name] = ((C,) if "q_norm" in name else (2 * D,) if "k_norm" in name
                                                                  else shape)
    return shapes


def llama(eps, kv, moe=None, scaling=None, window=None, act="silu", scale=1):
    def forward(w, tokens, prefix, balance):
        x = scale * w["model.embed_tokens.weight"][tokens]
        for i in range(L):
            at = f"model.layers.{i}."
            y = rms_norm(x, w, at + "input_layernorm", eps)
            q = heads_of(linear(y, w, at + "self_attn.q_proj"), H)
            k, v = (heads_of(linear(y, w, at + f"self_attn.{n}_proj"), kv) for n in "kv")
            if at + "self_attn.q_norm.weight" in w:
                q, k = rms_norm(q, w, at + "self_attn.q_norm", eps), rms_norm(k, w, at + "self_attn.k_norm", eps)
            q, k = rotate(q, D, scaling=scaling), rotate(k, D, scaling=scaling)
            x = x + linear(attend(q, k, v, window=window), w, at + "self_attn.o_proj")
            y = rms_norm(x, w, at + "post_attention_layernorm", eps)
            if moe:
                block, (gate, up, down) = at + moe["block"], moe["names"]

                def run(e, z, block=block, gate=gate, up=up, down=down):
                    act = ACTIVATIONS["silu"](linear(z, w, f"{block}.experts.{e}.{gate}"))
                    return linear(act * linear(z, w, f"{block}.experts.{e}.{up}"), w, f"{block}.experts.{e}.{down}")
                x = x + experts(y, moe, w[block + ".gate.weight"].T, run, balance)
            else:
                gate = ACTIVATIONS[act](linear(y, w, at + "mlp.gate_proj"))
                x = x + linear(gate * linear(y, w, at + "mlp.up_proj"), w, at + "mlp.down_proj")
        head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
        return rms_norm(x, w, "model.norm", eps) @ head.T
    return forward


def phi3(w, tokens, prefix, balance):
    """LLaMA with q, k, v in one tensor, and gate and up."""
    w = dict(w)
    for i in range(L):
        at = f"model.layers.{i}."
        for name, parts in (("self_attn.%s_proj.weight", "qkv"), ("mlp.%s_proj.weight", ("gate", "up"))):
            fused = w.pop(at + name % ("qkv" if parts == "qkv" else "gate_up"))
            sizes = (C, 2 * D, 2 * D) if parts == "qkv" else (20, 20)
            w.update({at + name % part: piece for part, piece in zip(parts, fused.split(sizes))})
    return llama(1e-5, 2, window=5)(w, tokens, prefix, balance)


def phi3_shapes():
    shapes = {}
    for name, shape in llama_shapes(2, 20).items():
        if "k_proj" not in name and "v_proj" not in name and "gate_proj" not in name:
            shape = (C + 4 * D, C) if "q_proj" in name else (40, C) if "up_proj" in name else shape
            shapes[name.replace("q_proj", "qkv_proj").replace("up_proj", "gate_up_proj")] = shape
    return shapes


def glm4(w, tokens, prefix, balance):
    """GLM-4: a half of each head turns in neighbouring pairs, gate and up in one tensor; that of 2025 has norms of what attention
    and MLP give."""
    eps, x = 1e-6, w["model.embed_tokens.weight"][tokens]

    def out(y, name):
        return rms_norm(y, w, name, eps) if name + ".weight" in w else y
    for i in range(L):
        at = f"model.layers.{i}."
        y = rms_norm(x, w, at + "input_layernorm", eps)
        q, k, v = (heads_of(linear(y, w, at + f"self_attn.{n}_proj"), H if n == "q" else 2) for n in "qkv")
        y = attend(rotate(q, D // 2, neighbours=True), rotate(k, D // 2, neighbours=True), v)
        x = x + out(linear(y, w, at + "self_attn.o_proj"), at + "post_self_attn_layernorm")
        gate, up = linear(rms_norm(x, w, at + "post_attention_layernorm", eps), w, at + "mlp.gate_up_proj").split(20, 2)
        x = x + out(linear(ACTIVATIONS["silu"](gate) * up, w, at + "mlp.down_proj"), at + "post_mlp_layernorm")
    return rms_norm(x, w, "model.norm", eps) @ w["lm_head.weight"].T


def glm4_shapes(norms):
    shapes = {name.replace("up_proj", "gate_up_proj"): (40, C) if "up_proj" in name else shape
              for name, shape in llama_shapes(2, 20, biases=True).items() if "gate_proj" not in name}
    if norms:
        shapes.update({f"model.layers.{i}.post_{n}_layernorm.weight": (C,) for i in range(L) for n in ("self_attn", "mlp")})
    return shapes


def deepseek_choice(scores, bias, c):
    """Experts of each position: the best of the best groups, which count by their best, or with sigmoids by their best two."""
    by, groups = scores + bias, c.get("n_group") or 1
    if c.get("topk_method") != "greedy":
        best = by.unflatten(-1, (groups, -1)).sort(-1, descending=True)[0]
        best = best[..., :2].sum(-1) if c["model_type"] == "deepseek_v3" else best[..., 0]
        order = best.argsort(-1, descending=True)[..., :c["topk_group"]]
        opened = F.one_hot(order, groups).sum(-2).bool().repeat_interleave(c["n_routed_experts"] // groups, -1)
        by = by.masked_fill(~opened, float("-inf"))
    return by.topk(c["num_experts_per_tok"], -1)[1]


def deepseek_experts(y, w, at, c):
    v3, logits = c["model_type"] == "deepseek_v3", linear(y, w, at + "gate")
    scores = torch.sigmoid(logits) if v3 else logits.softmax(-1)
    choice = deepseek_choice(scores.detach(), w[at + "gate.e_score_correction_bias"].detach() if v3 else 0, c)
    weights = scores.gather(-1, choice)
    weights = c["routed_scaling_factor"] * (weights / weights.sum(-1, keepdim=True) if c["norm_topk_prob"] else weights)

    def mlp(name):
        return linear(ACTIVATIONS["silu"](linear(y, w, name + ".gate_proj")) * linear(y, w, name + ".up_proj"), w, name + ".down_proj")
    total = mlp(at + "shared_experts")
    for e in range(c["n_routed_experts"]):
        total = total + (weights * (choice == e)).sum(-1)[..., None] * mlp(f"{at}experts.{e}")
    return total


def deepseek(c):
    """Multi-head latent attention: heads come from norms of latents, the part of keys that turns is that of all heads."""
    plain, turns, scaling = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c.get("rope_scaling")
    more = 1 + 0.1 * scaling["mscale_all_dim"] * math.log(scaling["factor"]) if scaling else 1

    def forward(w, tokens, prefix, balance):
        x = w["model.embed_tokens.weight"][tokens]
        for i in range(L):
            at = f"model.layers.{i}.self_attn."
            y = q = rms_norm(x, w, f"model.layers.{i}.input_layernorm", 1e-6)
            if c["q_lora_rank"]:
                q = linear(rms_norm(linear(q, w, at + "q_a_proj"), w, at + "q_a_layernorm", 1e-6), w, at + "q_b_proj")
            else:
                q = linear(q, w, at + "q_proj")
            latent, key = linear(y, w, at + "kv_a_proj_with_mqa").split((c["kv_lora_rank"], turns), -1)
            both = heads_of(linear(rms_norm(latent, w, at + "kv_a_layernorm", 1e-6), w, at + "kv_b_proj"), H)
            k, v = both.split((plain, c["v_head_dim"]), -1)
            q, last = heads_of(q, H).split((plain, turns), -1)
            last, key = (rotate(z, turns, neighbours=True, scaling=scaling) for z in (last, heads_of(key, 1)))
            y = attend(torch.cat((q, last), -1), torch.cat((k, key.expand(B, H, T, turns)), -1), v, scale=(plain + turns) / more ** 4)
            x = x + linear(y, w, at + "o_proj")
            y, at = rms_norm(x, w, f"model.layers.{i}.post_attention_layernorm", 1e-6), f"model.layers.{i}.mlp."
            if at + "gate.weight" in w:
                x = x + deepseek_experts(y, w, at, c)
            else:
                act = ACTIVATIONS["silu"](linear(y, w, at + "gate_proj"))
                x = x + linear(act * linear(y, w, at + "up_proj"), w, at + "down_proj")
        return rms_norm(x, w, "model.norm", 1e-6) @ w["lm_head.weight"].T
    return forward


def deepseek_shapes(c):
    shapes = {"model.embed_tokens.weight": (V, C), "model.norm.weight": (C,), "lm_head.weight": (V, C)}
    turns, head, ql, kl = c["qk_rope_head_dim"], c["qk_nope_head_dim"] + c["qk_rope_head_dim"], c["q_lora_rank"], c["kv_lora_rank"]

    def mlp(at, ffn):
        return {at + "gate_proj.weight": (ffn, C), at + "up_proj.weight": (ffn, C), at + "down_proj.weight": (C, ffn)}
    for i in range(L):
        at, ffn = f"model.layers.{i}.", c["moe_intermediate_size"]
        shapes.update({at + "input_layernorm.weight": (C,), at + "post_attention_layernorm.weight": (C,)})
        at += "self_attn."
        shapes.update({at + "kv_a_proj_with_mqa.weight": (kl + turns, C), at + "kv_a_layernorm.weight": (kl,),
                       at + "kv_b_proj.weight": (H * (head - turns + c["v_head_dim"]), kl),
                       at + "o_proj.weight": (C, H * c["v_head_dim"])})
        shapes.update({at + "q_a_proj.weight": (ql, C), at + "q_a_layernorm.weight": (ql,), at + "q_b_proj.weight": (H * head, ql)}
                      if ql else {at + "q_proj.weight": (H * head, C)})
        at = f"model.layers.{i}.mlp."
        if i < c["first_k_dense_replace"]:
            shapes.update(mlp(at, c["intermediate_size"]))
            continue
        shapes.update({at + "gate.weight": (c["n_routed_experts"], C), **mlp(at + "shared_experts.", c["n_shared_experts"] * ffn)})
        if c["model_type"] == "deepseek_v3":
            shapes[at + "gate.e_score_correction_bias"] = (c["n_routed_experts"],)
        for e in range(c["n_routed_experts"]):
            shapes.update(mlp(f"{at}experts.{e}.", ffn))
    return shapes


def llama_shapes(kv, ffn, tied=False, moe=None, biases=False, norms=False):
    shapes = {"model.embed_tokens.weight": (V, C), "model.norm.weight": (C,)}
    if not tied:
        shapes["lm_head.weight"] = (V, C)
    for i in range(L):
        at = f"model.layers.{i}."
        shapes.update({at + "input_layernorm.weight": (C,), at + "post_attention_layernorm.weight": (C,),
                       at + "self_attn.q_proj.weight": (C, C), at + "self_attn.k_proj.weight": (kv * D, C),
                       at + "self_attn.v_proj.weight": (kv * D, C), at + "self_attn.o_proj.weight": (C, C)})
        if biases:
            shapes.update({at + "self_attn.q_proj.bias": (C,), at + "self_attn.k_proj.bias": (kv * D,),
                           at + "self_attn.v_proj.bias": (kv * D,)})
        if norms:
            shapes.update({at + "self_attn.q_norm.weight": (D,), at + "self_attn.k_norm.weight": (D,)})
        if moe:
            shapes[at + moe["block"] + ".gate.weight"] = (moe["experts"], C)
            for e in range(moe["experts"]):
                shapes.update({f"{at}{moe['block']}.experts.{e}.{name}.weight": (C, ffn) if name == moe["names"][2] else (ffn, C)
                               for name in moe["names"]})
        else:
            shapes.update({at + "mlp.gate_proj.weight": (ffn, C), at + "mlp.up_proj.weight": (ffn, C),
                           at + "mlp.down_proj.weight": (C, ffn)})
    return shapes


OSS = {"experts": 4, "limit": 0.4, "D": 6, "scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 1.8, "beta_slow": 0.01,
                                                       "truncate": False, "original_max_position_embeddings": T}}


def gpt_oss(w, tokens, prefix, balance):
    """Sinks, windows in turn, and experts with biases, whose gates and ups stand in turn and have limits."""
    x, turn = w["model.embed_tokens.weight"][tokens], {"theta": 150000.0, "scaling": OSS["scaling"]}
    for i in range(L):
        at = f"model.layers.{i}."
        y = rms_norm(x, w, at + "input_layernorm", 1e-5)
        q, k, v = (heads_of(linear(y, w, at + f"self_attn.{n}_proj"), H if n == "q" else 2) for n in "qkv")
        y = attend(rotate(q, OSS["D"], **turn), rotate(k, OSS["D"], **turn), v, window=None if i % 2 else 5,
                   sinks=w[at + "self_attn.sinks"])
        x = x + linear(y, w, at + "self_attn.o_proj")
        y = rms_norm(x, w, at + "post_attention_layernorm", 1e-5)
        values, choice = linear(y, w, at + "mlp.router").topk(2, -1)
        shares = torch.zeros(B, T, OSS["experts"], dtype=x.dtype).scatter(2, choice, values.softmax(-1))
        for e in range(OSS["experts"]):
            wide = y @ w[at + "mlp.experts.gate_up_proj"][e] + w[at + "mlp.experts.gate_up_proj_bias"][e]
            gate, up = wide[..., ::2].clamp(max=OSS["limit"]), wide[..., 1::2].clamp(-OSS["limit"], OSS["limit"])
            z = (ACTIVATIONS["quick_gelu"](gate) * (up + 1)) @ w[at + "mlp.experts.down_proj"][e]
            x = x + shares[..., e:e + 1] * (z + w[at + "mlp.experts.down_proj_bias"][e])
    return rms_norm(x, w, "model.norm", 1e-5) @ w["lm_head.weight"].T


def gpt_oss_shapes():
    shapes, e, n = {"model.embed_tokens.weight": (V, C), "model.norm.weight": (C,), "lm_head.weight": (V, C)}, OSS["experts"], OSS["D"]
    for i in range(L):
        at = f"model.layers.{i}."
        shapes.update({at + "input_layernorm.weight": (C,), at + "post_attention_layernorm.weight": (C,),
                       **matrix(at + "self_attn.q_proj", H * n, C, H * n), **matrix(at + "self_attn.k_proj", 2 * n, C, 2 * n),
                       **matrix(at + "self_attn.v_proj", 2 * n, C, 2 * n), **matrix(at + "self_attn.o_proj", C, H * n, C),
                       at + "self_attn.sinks": (H,), **matrix(at + "mlp.router", e, C, e),
                       at + "mlp.experts.gate_up_proj": (e, C, 40), at + "mlp.experts.gate_up_proj_bias": (e, 40),
                       at + "mlp.experts.down_proj": (e, 20, C), at + "mlp.experts.down_proj_bias": (e, C)})
    return shapes


MASK, GMASK, SOP, EOP = range(V - 4, V)


def short_blanks(text, blanks, order):
    """The text with a [MASK] for each blank (begin, end), then what they hid, at the position of their [MASK]."""
    tokens, place, last = [], [], 0
    for begin, end in blanks:
        tokens += text[last:begin] + [MASK]
        place.append(len(tokens) - 1)
        last = end
    tokens += text[last:]
    prefix, targets, positions = len(tokens), [0] * len(tokens), list(range(len(tokens)))
    for i in order:
        hidden = text[slice(*blanks[i])]
        tokens, targets = tokens + [SOP] + hidden, targets + hidden + [EOP]
        positions += [place[i]] * (len(hidden) + 1)
    return {"tokens": tokens, "targets": targets, "prefix": prefix, "positions": positions}


def missing_end(text, kept):
    """A [gMASK] for the end of the text, which follows."""
    return {"tokens": text[:kept] + [GMASK, SOP] + text[kept:-1], "targets": [0] * (kept + 1) + text[kept:],
            "prefix": kept + 1, "positions": list(range(T))}


GLM_EXAMPLES = [short_blanks([3, 1, 4, 1, 5, 9, 2, 6], [(2, 4), (6, 7)], [1, 0]),
                missing_end([2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4], 5)]


def glm(w, tokens, prefix, balance):
    """GLM-130B: DeepNorm, rotary positions, GeGLU, open attention within the prefix. The gradient of the embedding is a tenth."""
    table, alpha, ffn = w["transformer.wte.weight"], math.sqrt(2 * L), 2 * C
    x = (0.1 * table + 0.9 * table.detach())[tokens]
    positions = [e["positions"] for e in GLM_EXAMPLES]
    for i in range(L):
        at = f"transformer.h.{i}."
        q, k, v = (heads_of(y, H) for y in conv(x, w, at + "attn.c_attn").split(C, 2))
        attended = attend(rotate(q, D, positions=positions), rotate(k, D, positions=positions), v, prefix)
        x = layer_norm(alpha * x + conv(attended, w, at + "attn.c_proj"), w, at + "ln_1")
        gate, up = conv(x, w, at + "mlp.c_fc").split(ffn, 2)
        y = conv(ACTIVATIONS["gelu"](gate) * up, w, at + "mlp.c_proj")
        x = layer_norm(alpha * x + y, w, at + "ln_2")
    return x @ table.T


def glm_shapes():
    shapes = gpt2_shapes(2 * C, gated=True)
    return {name: shape for name, shape in shapes.items() if "wpe" not in name and "ln_f" not in name}


def megatron_moe(w, tokens, prefix, balance):
    """What Megatron can mix: a quarter of each head rotates in neighbouring pairs, RMSNorm, and experts with GELU."""
    x = w["transformer.wte.weight"][tokens]
    for i in range(L):
        at = f"transformer.h.{i}."
        y = rms_norm(x, w, at + "ln_1", 1e-5)
        q, k, v = conv(y, w, at + "attn.c_attn").split((C, C // 3, C // 3), 2)
        q, k, v = heads_of(q, H), heads_of(k, H // 3), heads_of(v, H // 3)
        turned = attend(rotate(q, 2, neighbours=True), rotate(k, 2, neighbours=True), v)
        x = x + conv(turned, w, at + "attn.c_proj")
        y = rms_norm(x, w, at + "ln_2", 1e-5)

        def run(e, z, at=at + "mlp.experts."):
            fc, proj = w[at + "c_fc.weight"].reshape(4, C, C), w[at + "c_proj.weight"].reshape(4, C, C)
            return ACTIVATIONS["gelu"](z @ fc[e]) @ proj[e]
        x = x + experts(y, {"experts": 4, "k": 2}, w[at + "mlp.router.weight"], run, balance)
    return rms_norm(x, w, "transformer.ln_f", 1e-5) @ w["lm_head.weight"].T


def megatron_moe_shapes():
    shapes = {"transformer.wte.weight": (V, C), "lm_head.weight": (V, C), "transformer.ln_f.weight": (C,)}
    for i in range(L):
        at = f"transformer.h.{i}."
        shapes.update({at + "ln_1.weight": (C,), at + "ln_2.weight": (C,), at + "attn.c_attn.weight": (C, C + 2 * C // 3),
                       at + "attn.c_proj.weight": (C, C), at + "mlp.router.weight": (C, 4),
                       at + "mlp.experts.c_fc.weight": (4 * C, C), at + "mlp.experts.c_proj.weight": (4 * C, C)})
    return shapes


def architectures():
    gpt2_config = {"vocab_size": V, "n_positions": T, "n_layer": L, "n_embd": C, "n_head": H,
                   "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
    llama_config = {"vocab_size": V, "max_position_embeddings": T, "num_hidden_layers": L, "hidden_size": C,
                    "num_attention_heads": H, "num_key_value_heads": 2, "intermediate_size": 20, "hidden_act": "silu",
                    "rms_norm_eps": 1e-6, "bos_token_id": 0, "eos_token_id": 0}
    moe = {"experts": 4, "k": 2, "block": "block_sparse_moe", "names": ("w1", "w3", "w2")}
    qwen_moe = {**moe, "block": "mlp", "names": ("gate_proj", "up_proj", "down_proj")}
    top_query = {f"transformer.h.{L - 1}.attn.wqe.weight": (T, C)}
    yield Architecture("GPT-2", {"model_type": "gpt2", **gpt2_config}, gpt2_shapes(), gpt2("gelu_new"))
    yield Architecture("OPT", {"model_type": "opt", "vocab_size": V, "max_position_embeddings": T, "num_hidden_layers": L,
                               "hidden_size": C, "word_embed_proj_dim": C, "num_attention_heads": H, "ffn_dim": 2 * C,
                               "activation_function": "relu", "dropout": 0.0, "attention_dropout": 0.0,
                               "pad_token_id": None, "bos_token_id": 0, "eos_token_id": 0}, opt_shapes(), opt)
    yield Architecture("BLOOM", {"model_type": "bloom", "vocab_size": V, "seq_length": T, "n_layer": L, "hidden_size": C,
                                 "n_head": H, "hidden_dropout": 0.0, "attention_dropout": 0.0, "pad_token_id": 0,
                                 "bos_token_id": 0, "eos_token_id": 0},
                       joined_shapes("transformer.h.%d.", "self_attention",
                                     {"transformer.word_embeddings.weight": (V, C), **vector("transformer.ln_f", C),
                                      **vector("transformer.word_embeddings_layernorm", C)}), bloom)
    yield Architecture("GPT-NeoX", {"model_type": "gpt_neox", "vocab_size": V, "max_position_embeddings": T,
                                    "num_hidden_layers": L, "hidden_size": C, "num_attention_heads": H,
                                    "intermediate_size": 4 * C, "hidden_act": "gelu", "rotary_pct": 0.5,
                                    "rotary_emb_base": 10000, "use_parallel_residual": True,
                                    "tie_word_embeddings": False, "hidden_dropout": 0.0, "attention_dropout": 0.0,
                                    "bos_token_id": 0, "eos_token_id": 0},
                       joined_shapes("gpt_neox.layers.%d.", "attention",
                                     {"gpt_neox.embed_in.weight": (V, C), "embed_out.weight": (V, C),
                                      **vector("gpt_neox.final_layer_norm", C)}), neox)
    yield Architecture("LLaMA", {"model_type": "llama", "tie_word_embeddings": False, **llama_config},
                       llama_shapes(2, 20), llama(1e-6, 2))
    yield Architecture("LLaMA, tied", {"model_type": "llama", "tie_word_embeddings": True, **llama_config},
                       llama_shapes(2, 20, tied=True), llama(1e-6, 2))
    for scaling in ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 0.2, "high_freq_factor": 1.5,
                     "original_max_position_embeddings": 9}, {"rope_type": "linear", "factor": 4.0},
                    {"rope_type": "dynamic", "factor": 2.0},
                    {"rope_type": "yarn", "factor": 4.0, "beta_fast": 1.8, "beta_slow": 0.01,
                     "original_max_position_embeddings": T}):
        yield Architecture(f"LLaMA, {scaling['rope_type']}", {"model_type": "llama", "tie_word_embeddings": False,
                                                              "rope_scaling": scaling, **llama_config},
                           llama_shapes(2, 20), llama(1e-6, 2, scaling=scaling))
    yield Architecture("Mistral, a window", {"model_type": "mistral", "tie_word_embeddings": False, "sliding_window": 5,
                                             **llama_config}, llama_shapes(2, 20), llama(1e-6, 2, window=5))
    yield Architecture("Mixtral", {"model_type": "mixtral", "tie_word_embeddings": False, **llama_config,
                                   "rope_theta": 10000.0, "num_local_experts": 4, "num_experts_per_tok": 2,
                                   "router_aux_loss_coef": 0.0, "sliding_window": None},
                       llama_shapes(2, 20, moe=moe), llama(1e-6, 2, moe))
    yield Architecture("Qwen2", {"model_type": "qwen2", "tie_word_embeddings": True, **llama_config},
                       llama_shapes(2, 20, tied=True, biases=True), llama(1e-6, 2))
    yield Architecture("Qwen3", {"model_type": "qwen3", "tie_word_embeddings": False, "head_dim": D, **llama_config},
                       llama_shapes(2, 20, norms=True), llama(1e-6, 2))
    yield Architecture("Qwen3, experts", {"model_type": "qwen3_moe", "tie_word_embeddings": False, "head_dim": D, **llama_config,
                                          "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 20,
                                          "norm_topk_prob": True, "router_aux_loss_coef": 0.0},
                       llama_shapes(2, 20, moe=qwen_moe, norms=True), llama(1e-6, 2, qwen_moe))
    yield Architecture("Phi-3", {"model_type": "phi3", "tie_word_embeddings": False, **llama_config, "rms_norm_eps": 1e-5,
                                 "pad_token_id": 0, "sliding_window": 5, "original_max_position_embeddings": T},
                       phi3_shapes(), phi3)
    yield Architecture("Gemma", {"model_type": "gemma", "tie_word_embeddings": True, **llama_config, "head_dim": D,
                                 "hidden_act": "gelu_pytorch_tanh", "pad_token_id": 0},
                       llama_shapes(2, 20, tied=True), gemma(1e-6, 2))
    caps = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0, "query_pre_attn_scalar": 6, "sliding_window": 5}
    yield Architecture("Gemma 2", {"model_type": "gemma2", "tie_word_embeddings": True, **llama_config, "head_dim": D, **caps,
                                   "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
                                   "pad_token_id": 0}, gemma2_shapes(), gemma2(1e-6, 2, caps))
    caps = {"final_logit_softcapping": 5.0, "query_pre_attn_scalar": 6, "sliding_window": 5, "rope_theta": 1e6,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "layer_types": ["sliding_attention", "full_attention"]}
    yield Architecture("Gemma 3", {"model_type": "gemma3_text", "tie_word_embeddings": True, **llama_config, "head_dim": D, **caps,
                                   "hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu_pytorch_tanh",
                                   "pad_token_id": 0, "rope_local_base_freq": 10000.0},
                       gemma2_shapes(norms=True), gemma2(1e-6, 2, caps))
    yield Architecture("OLMo 2", {"model_type": "olmo2", "tie_word_embeddings": False, **llama_config, "pad_token_id": 0},
                       olmo2_shapes(), olmo2(1e-6, 2))
    glm4_config = {"tie_word_embeddings": False, **llama_config, "head_dim": D, "attention_bias": True, "pad_token_id": 0,
                   "partial_rotary_factor": 0.5}
    yield Architecture("GLM-4 of 2024", {"model_type": "glm", **glm4_config}, glm4_shapes(False), glm4)
    yield Architecture("GLM-4 of 2025", {"model_type": "glm4", **glm4_config}, glm4_shapes(True), glm4)
    yield Architecture("gpt-oss", {"model_type": "gpt_oss", "tie_word_embeddings": False, **llama_config, "head_dim": OSS["D"],
                                   "rms_norm_eps": 1e-5, "rope_theta": 150000.0, "rope_scaling": OSS["scaling"],
                                   "sliding_window": 5, "num_local_experts": OSS["experts"], "num_experts_per_tok": 2,
                                   "swiglu_limit": OSS["limit"], "router_aux_loss_coef": 0.0, "pad_token_id": 0},
                       gpt_oss_shapes(), gpt_oss)
    latent = {"tie_word_embeddings": False, **llama_config, "num_key_value_heads": H, "kv_lora_rank": 8, "qk_nope_head_dim": 6,
              "qk_rope_head_dim": 4, "v_head_dim": 5, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 6,
              "n_shared_experts": 2, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5, "n_group": 4, "topk_group": 2}
    yarn = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 1.8, "beta_slow": 0.01, "original_max_position_embeddings": T,
            "mscale": 1.0, "mscale_all_dim": 0.7}
    for name, more in (("DeepSeek-V3", {"model_type": "deepseek_v3", "q_lora_rank": 10, "norm_topk_prob": True, "rope_scaling": yarn,
                                        "rope_interleave": True}),
                       ("DeepSeek-V3, plain", {"model_type": "deepseek_v3", "q_lora_rank": None, "norm_topk_prob": False,
                                               "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0}),
                       ("DeepSeek-V2", {"model_type": "deepseek_v2", "q_lora_rank": 10, "norm_topk_prob": False,
                                        "topk_method": "group_limited_greedy"}),
                       ("DeepSeek-V2 Lite", {"model_type": "deepseek_v2", "q_lora_rank": None, "norm_topk_prob": False,
                                             "topk_method": "greedy", "n_group": 1, "topk_group": 1})):
        config = {**latent, **more}
        yield Architecture(name, config, deepseek_shapes(config), deepseek(config))
    yield Architecture("GLM-130B", {"model_type": "glm", "vocab_size": V, "max_position_embeddings": T,
                                    "num_hidden_layers": L, "hidden_size": C, "num_attention_heads": H,
                                    "intermediate_size": 2 * C, "hidden_act": "geglu"}, glm_shapes(), glm,
                       examples=GLM_EXAMPLES, hf=False)
    yield Architecture("CodeGeeX", {"model_type": "codegeex", **gpt2_config}, {**gpt2_shapes(), **top_query},
                       gpt2("quick_gelu", top_query=True), hf=False)
    yield Architecture("MT-NLG", {"model_type": "megatron_gpt", "vocab_size": V, "max_position_embeddings": T,
                                  "num_layers": L, "hidden_size": C, "num_attention_heads": H,
                                  "ffn_hidden_size": 4 * C, "activation_function": "gelu_new"},
                       gpt2_shapes(), gpt2("gelu_new"), hf=False)
    yield Architecture("Megatron, experts", {"model_type": "megatron_gpt", "vocab_size": V, "max_position_embeddings": T,
                                             "num_layers": L, "hidden_size": C, "num_attention_heads": H,
                                             "num_query_groups": 2, "ffn_hidden_size": C, "add_bias_linear": False,
                                             "activation_function": "gelu", "normalization": "RMSNorm",
                                             "position_embedding_type": "rope", "rotary_percent": 0.5,
                                             "rotary_interleaved": True, "num_experts": 4, "moe_router_topk": 2,
                                             "moe_aux_loss_coeff": 0.3, "moe_expert_capacity_factor": 2.0,
                                             "untie_embeddings_and_output_weights": True},
                       megatron_moe_shapes(), megatron_moe, balance=0.3, hf=False)


# ---- the comparison ----------------------------------------------------------------------------------------------------

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
    report.check(f"{arch.name}: balance loss", abs(answer["balance"] - auxiliary.item()), LOSS_TOLERANCE)
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
    for arch in architectures():
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
