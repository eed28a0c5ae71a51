#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""gyre-eval against `transformers` in double precision, on one rank and on two: the perplexity of a text in overlapping windows,
and the log-probabilities and accuracies of questions."""
import json
import math
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
try:
    import small_bpe
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed (tools/setup references)")
    sys.exit(77)

import evaluate_questions as reference

BUILD = os.path.abspath(os.environ.get("B", "build"))
POSITIONS, STRIDE = 320, 100
SIZES = {"vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3}
MODELS = {
    "gpt2": transformers.GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=4, n_positions=POSITIONS, initializer_range=0.3),
    "llama": transformers.LlamaConfig(**SIZES, intermediate_size=48, num_key_value_heads=2, max_position_embeddings=POSITIONS),
}


def log_probabilities(model, ids):
    """Of each id but the first."""
    with torch.no_grad():
        logs = torch.log_softmax(model(torch.tensor([ids[:-1]])).logits[0], -1)
    return [logs[i, token].item() for i, token in enumerate(ids[1:])]


def perplexity(model, ids):
    """Log-probabilities of each id but the first, in windows."""
    logs = []
    while len(logs) < len(ids) - 1:
        begin = 0 if not logs else len(logs) - POSITIONS + STRIDE
        window = log_probabilities(model, ids[begin:begin + POSITIONS + 1])
        logs += window[len(logs) - begin:]
    return logs


def score(model, tokenizer, context, choice):
    kept = context.rstrip()
    before = tokenizer(kept)["input_ids"]
    both = tokenizer(kept + context[len(kept):] + " " + choice)["input_ids"]
    ids = (before + both[len(before):])[-(POSITIONS + 1):]
    return sum(log_probabilities(model, ids)[-(len(both) - len(before)):])


def gyre(ranks, *options):
    launch = [f"{BUILD}/bin/ucx-run", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*launch, f"{BUILD}/bin/gyre-eval", "--quiet", "--json", "json", "--logprobs", "logs", *options],
                          capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    with open("json", encoding="utf-8") as results, open("logs", encoding="utf-8") as logs:
        return json.load(results)["results"], [json.loads(line) for line in logs]


def near(name, values, expected, tolerance):
    assert len(values) == len(expected), (name, len(values), len(expected))
    worst = max(abs(a - b) for a, b in zip(values, expected))
    assert worst < tolerance, f"{name}: a log-probability is off by {worst}"


def compare(name, model, tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    expected = perplexity(model, ids)
    size = len(tokenizer.decode(ids[1:]).encode())
    asked = {path: list(reference.questions(path.split("_")[0].split(".")[0], path))
             for path in ("hellaswag_val.jsonl", "arc.jsonl", "mmlu_abstract_algebra_test.csv")}
    scores = {path: [[score(model, tokenizer, context, choice) for choice in choices] for context, choices, _ in all_of]
              for path, all_of in asked.items()}
    for ranks in (1, 2):
        (row,), logs = gyre(ranks, "--load", name, "--stride", str(STRIDE), "text")
        near(name, [line["logprob"] for line in logs], expected, 1e-4)  # transformers has RoPE's angles in fp32
        nats = -sum(expected) / len(expected)
        assert row["tokens"] == len(expected) and row["bytes"] == size, (row, len(expected), size)
        assert math.isclose(row["nats_per_token"], nats, rel_tol=1e-6) and math.isclose(row["perplexity"], math.exp(nats), rel_tol=1e-5)
        assert math.isclose(row["bits_per_byte"], nats * len(expected) / math.log(2) / size, rel_tol=1e-6), row
        for path, all_of in asked.items():
            (row,), logs = gyre(ranks, "--load", name, "--task", path.split("_")[0].split(".")[0], "--long", "cut", path)
            near(f"{name}, {path}", [line["logprob"] for line in logs], sum(scores[path], []), 1e-4)
            reference.check_row(row, all_of, scores[path])
    print(f"{name}: {len(expected)} tokens and {sum(map(len, asked.values()))} questions, as transformers {transformers.__version__}")


def main():
    with open("tests/support/english.txt", encoding="utf-8") as readme:
        text = readme.read()
    tokenizer = small_bpe.train(text)
    with tempfile.TemporaryDirectory() as top:
        os.chdir(top)
        reference.write()
        with open("text", "w", encoding="utf-8") as out:
            out.write(text[:1500])
        for name, config in MODELS.items():
            torch.set_default_dtype(torch.float32)
            torch.manual_seed(1)
            model = transformers.AutoModelForCausalLM.from_config(config).eval()
            model.save_pretrained(name)
            tokenizer.save_pretrained(name)
            torch.set_default_dtype(torch.float64)
            compare(name, model.double(), tokenizer, text[:1500])


main()
