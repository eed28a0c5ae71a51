#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# newest transformers, too: families that 4.46 lacks
"""The likeliest text of gyre-generate is that of `transformers`, in double precision, for 64 tokens after each of
some prompts, on one rank and on two. Each log-probability is within 2e-5 of it: Gyre computes in float. 1e-4
where rotary angles are scaled: `transformers` computes those in float.

One forward of `transformers` over the text shows that: if after each beginning of it the likeliest token is the
next one, it is the text. With TEST_LONG set its generate() makes the text, too; that of 4.46 does not work with
Debian 12's PyTorch and Python."""
import json
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
import hf_families

BUILD = os.environ.get("B", "build")
TOKENS = 64
SCALED = {"llama, llama3", "llama, yarn", "gpt_oss", "deepseek_v3"}
PROMPTS = ["Gyre is a", "the quick brown fox", "collectives"]


def compare(model, prompt, said):
    """The largest difference of a log-probability in `said`: (token, log-probability) after the ids `prompt`."""
    tokens = [token for token, _ in said]
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens[:-1]]), use_cache=False).logits[0, len(prompt) - 1:]
        logs = torch.log_softmax(logits, -1)
        likeliest = logs.argmax(-1).tolist()
        assert tokens == likeliest, f"{tokens}, but {likeliest} are likelier"
        if "TEST_LONG" in os.environ and hf_families.release(transformers) > (4, 46):
            greedy = transformers.GenerationConfig(max_new_tokens=TOKENS, do_sample=False, pad_token_id=0)
            model.generation_config.eos_token_id = None
            made = model.generate(torch.tensor([prompt]), generation_config=greedy)[0, len(prompt):].tolist()
            assert tokens == made, f"{tokens}, but generate() has {made}"
    return max(abs(log - logs[i, token].item()) for i, (token, log) in enumerate(said))


def gyre(folder, ranks, log):
    launch = [f"{BUILD}/bin/ucx-run", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*launch, f"{BUILD}/bin/gyre-generate", "--load", folder, "--lines", "--temperature", "0", "--tokens",
                           str(TOKENS), "--ignore-eot", "--quiet", "--logprobs", log], input="\n".join(PROMPTS) + "\n",
                          capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    said = [[] for _ in PROMPTS]
    with open(log, encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            said[line["prompt"]].append((line["token"], line["logprob"]))
    return said


def main():
    with open("tests/support/english.txt", encoding="utf-8") as readme:
        tokenizer = small_bpe.train(readme.read())
    with tempfile.TemporaryDirectory() as top:
        for name, config in hf_families.rows(transformers):
            if name == "qwen2, windows" and hf_families.release(transformers) < (4, 48):
                continue  # whose eager attention has none
            folder = f"{top}/{name}"
            torch.set_default_dtype(torch.float32)
            torch.manual_seed(1)
            model = hf_families.model_of(transformers, config)
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            torch.set_default_dtype(torch.float64)
            model = model.double()
            said = gyre(folder, 1, f"{top}/log")
            assert said == gyre(folder, 2, f"{top}/log"), f"{name}: two ranks say something else"
            assert all(len(text) == TOKENS for text in said), said
            worst = 0.0
            for prompt, text in zip(PROMPTS, said):
                try:
                    worst = max(worst, compare(model, tokenizer(prompt)["input_ids"], text))
                except AssertionError as error:
                    sys.exit(f"{name} after '{prompt}': {error}")
            print(f"{name}: {len(PROMPTS)} times {TOKENS} tokens, those of transformers "
                  f"{transformers.__version__}; log-probabilities are within {worst:.0e}", flush=True)
            assert worst < (1e-4 if name in SCALED else 2e-5), worst


main()
