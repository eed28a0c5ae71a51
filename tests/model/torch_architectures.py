# SPDX-License-Identifier: Apache-2.0
"""tests/model/torch_architectures.py: every architecture that Gyre trains, as torch_arch_compare.py compares it with PyTorch:
its config.json, the names and shapes of its tensors, and its forward pass. `architectures` lists them.

Longer than 600 lines: each architecture is written out here a second time, and many are made from another's."""
import math

import torch
import torch.nn.functional as F

from torch_layers import (ACTIVATIONS, B, C, D, H, L, T, V, alibi_slopes, attend, conv, experts, heads_of, layer_norm, linear,
                          rms_norm, rotate)


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


def llama(eps, kv, moe=None, scaling=None, window=None, act="silu", scale=1, plain=()):
    """plain: layers whose queries and keys do not turn."""
    def forward(w, tokens, prefix, balance):
        x = scale * w["model.embed_tokens.weight"][tokens]
        for i in range(L):
            at = f"model.layers.{i}."
            y = rms_norm(x, w, at + "input_layernorm", eps)
            q = heads_of(linear(y, w, at + "self_attn.q_proj"), H)
            k, v = (heads_of(linear(y, w, at + f"self_attn.{n}_proj"), kv) for n in "kv")
            if at + "self_attn.q_norm.weight" in w:
                q, k = rms_norm(q, w, at + "self_attn.q_norm", eps), rms_norm(k, w, at + "self_attn.k_norm", eps)
            if i not in plain:
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


def megatron_moe(w, tokens, prefix, balance, z=0.0):
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
        x = x + experts(y, {"experts": 4, "k": 2, "z": z}, w[at + "mlp.router.weight"], run, balance)
    return rms_norm(x, w, "transformer.ln_f", 1e-5) @ w["lm_head.weight"].T


def z_losses(forward, logits, **routers):
    """`forward` with z-losses: of its logits times `logits`, of its routers as it takes them."""
    def forward_z(w, tokens, prefix, balance):
        out = forward(w, tokens, prefix, balance, **routers)
        balance.append(logits * out.logsumexp(-1).square().mean())
        return out
    return forward_z


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
    yield Architecture("SmolLM3", {"model_type": "smollm3", "tie_word_embeddings": True, **llama_config, "rope_theta": 10000.0,
                                   "no_rope_layer_interval": 2, "pad_token_id": None},
                       llama_shapes(2, 20, tied=True), llama(1e-6, 2, plain=range(1, L, 2)))
    yield Architecture("Qwen2", {"model_type": "qwen2", "tie_word_embeddings": True, **llama_config},
                       llama_shapes(2, 20, tied=True, biases=True), llama(1e-6, 2))
    yield Architecture("Qwen3", {"model_type": "qwen3", "tie_word_embeddings": False, "head_dim": D, **llama_config},
                       llama_shapes(2, 20, norms=True), llama(1e-6, 2))
    for shares in (True, False):
        yield Architecture("Qwen3, experts" + ("" if shares else ", raw weights"),
                           {"model_type": "qwen3_moe", "tie_word_embeddings": False, "head_dim": D, **llama_config,
                            "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "norm_topk_prob": shares,
                            "router_aux_loss_coef": 0.0},
                           llama_shapes(2, 20, moe=qwen_moe, norms=True), llama(1e-6, 2, {**qwen_moe, "shares": shares}))
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
    megatron_experts = {"model_type": "megatron_gpt", "vocab_size": V, "max_position_embeddings": T, "num_layers": L,
                        "hidden_size": C, "num_attention_heads": H, "num_query_groups": 2, "ffn_hidden_size": C,
                        "add_bias_linear": False, "activation_function": "gelu", "normalization": "RMSNorm",
                        "position_embedding_type": "rope", "rotary_percent": 0.5, "rotary_interleaved": True, "num_experts": 4,
                        "moe_router_topk": 2, "moe_aux_loss_coeff": 0.3, "moe_expert_capacity_factor": 2.0,
                        "untie_embeddings_and_output_weights": True}
    yield Architecture("Megatron, experts", megatron_experts, megatron_moe_shapes(), megatron_moe, balance=0.3, hf=False)
    yield Architecture("Megatron, z-losses", {**megatron_experts, "moe_z_loss_coeff": 0.3 * 0.2, "gyre": {"z_loss": 0.3 * 0.1}},
                       megatron_moe_shapes(), z_losses(megatron_moe, 0.1, z=0.2), balance=0.3, hf=False)
