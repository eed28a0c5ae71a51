#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Conversations against `transformers`: the same ids and the same learned tokens by the chat template of the model's folder; and with
them packed and padded, the mean loss over all answers and the gradient's norm, which `transformers` takes of each one alone. A model that
was tuned on conversations, whole or by adapters, gives their answers in `transformers`."""
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
try:
    import safetensors.torch
    import small_bpe
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed (tools/setup references)")
    sys.exit(77)

BUILD = os.environ.get("B", "build")
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
          "{% endfor %}")
SEQ = 320


def gyre(tool, *words):
    done = subprocess.run([f"{BUILD}/bin/{tool}", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{tool} {' '.join(words)}: {done.stderr}"


def conversations(words):
    draw = random.Random(4)

    def say(least, most):
        return " ".join(draw.choice(words) for _ in range(draw.randint(least, most)))

    for i in range(60):
        talk = [{"role": "system", "content": say(1, 5)}] if i % 3 == 0 else []
        for _ in range(draw.randint(1, 3)):
            talk += [{"role": "user", "content": say(1, 8)}, {"role": "assistant", "content": say(1, 6)}]
        yield talk


def read_tokens(path):
    """Documents as (ids, learned), as docs/data.md has the file."""
    with open(path, "rb") as file:
        data = file.read()
    version, bits, _, documents = struct.unpack_from("<IIQQ", data, 8)
    (table,) = struct.unpack_from("<Q", data, 48)
    (mask,) = struct.unpack_from("<Q", data, 224)
    assert (version, bits) == (2, 16)
    ends = struct.unpack_from(f"<{documents + 1}Q", data, table)
    for a, b in zip(ends, ends[1:]):
        yield (list(struct.unpack_from(f"<{b - a}H", data, 256 + 2 * a)),
               [data[mask + i // 8] >> i % 8 & 1 for i in range(a, b)])


def expected(tokenizer, talk):
    """What CHATML writes, as one text, and its tokens that overlap an answer or the end of one."""
    text, answers = "", []
    for message in talk:
        text += f"<|im_start|>{message['role']}\n"
        begin = len(text)
        text += message["content"] + "<|im_end|>"
        if message["role"] == "assistant":
            answers.append((begin, len(text)))
        text += "\n"
    made = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    return made["input_ids"], [int(any(a < end and b > begin for begin, end in answers)) for a, b in made["offset_mapping"]]


def mean_loss(model, documents):
    loss = learned = 0
    for ids, mask in documents:
        labels = torch.tensor([[i if m else -100 for i, m in zip(ids, mask)]])
        logits = model(torch.tensor([ids])).logits
        loss = loss + torch.nn.functional.cross_entropy(logits[0, :-1], labels[0, 1:], ignore_index=-100, reduction="sum")
        learned += (labels[0, 1:] >= 0).sum().item()
    return loss / learned


def answer_of(model, tokenizer, question):
    """The likeliest tokens up to the end of the answer."""
    ids = tokenizer.encode(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False)
    begin, end = len(ids), tokenizer.convert_tokens_to_ids("<|im_end|>")
    while ids[-1] != end and len(ids) < begin + 12: # not generate(), which PyTorch 1.13 does not serve under Python 3.11
        with torch.no_grad():
            ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
    return tokenizer.decode(ids[begin:])


def write_talks(path, answers):
    """2,000 conversations with these answers."""
    draw = random.Random(5)
    with open(path, "w", encoding="utf-8") as lines:
        for _ in range(2000):
            said = draw.sample(sorted(answers), 2)
            lines.write(json.dumps({"messages": [message for word in said for message in (
                {"role": "user", "content": f"{word}?"}, {"role": "assistant", "content": answers[word]})]}) + "\n")


def tune(folder, model_folder, answers, *words):
    """The folder of the model after 100 steps on conversations with these answers, and that model in `transformers`."""
    chats, out, tuned = (f"{folder}/{name}" for name in ("words.jsonl", "words.gyt", "tuned-" + "-".join(answers.values())))
    write_talks(chats, answers)
    gyre("gyre-tokenize", "--tokenizer", f"{model_folder}/tokenizer.json", "--jsonl", "--quiet", "--out", out, chats)
    gyre("gyre-train", "--load", model_folder, "--data", out, "--sampling", "packed", "--seq", "128", "--batch", "4", "--steps",
         "100", "--lr", "0.01", "--warmup", "5", "--eval-sequences", "8", "--report", "none", "--sample-tokens", "0", "--save",
         f"{tuned}/", *words)
    model, tokenizer = (kind.from_pretrained(tuned) for kind in (transformers.AutoModelForCausalLM, transformers.AutoTokenizer))
    said = {question: answer_of(model, tokenizer, f"{question}?") for question in answers}
    print(said)
    assert said == {question: f"{answer}<|im_end|>" for question, answer in answers.items()}
    return tuned, model


def add_adapters(model, checkpoint):
    """Adds x A B of each adapter in the checkpoint, which has one leaf, to what the products of `model` give."""
    (step,) = os.listdir(checkpoint)
    (shard,) = [name for name in os.listdir(f"{checkpoint}/{step}") if name.endswith(".safetensors")]
    vectors = safetensors.torch.load_file(f"{checkpoint}/{step}/{shard}")
    factor = {name[:name.index("[")]: value for name, value in vectors.items() if name.endswith("].weight")}
    adapted = 0
    for number, layer in enumerate(model.model.layers):
        attention, mlp = layer.self_attn, layer.mlp
        for name, products in (("self_attn.qkv_proj", [attention.q_proj, attention.k_proj, attention.v_proj]),
                               ("self_attn.o_proj", [attention.o_proj]), ("mlp.down_proj", [mlp.down_proj]),
                               ("mlp.gate_up_proj", [mlp.gate_proj, mlp.up_proj])):
            name = f"model.layers.{number}.{name}"
            a = factor[name + ".lora_A.weight"].double().reshape(products[0].in_features, -1)
            b = factor[name + ".lora_B.weight"].double().reshape(a.shape[1], -1)
            for product, part in zip(products, b.split([product.out_features for product in products], dim=1)):
                product.register_forward_hook(lambda _, x, y, a=a, part=part: y + 2 * (x[0] @ a) @ part)
                adapted += 1
    assert 2 * len(model.model.layers) * 4 == len(factor) and adapted == 7 * len(model.model.layers)


def add_exported(model, adapters):
    """Adds B A of each module in PEFT's folder to the module's weight."""
    with open(f"{adapters}/adapter_config.json", encoding="utf-8") as file:
        config = json.load(file)
    vectors = safetensors.torch.load_file(f"{adapters}/adapter_model.safetensors")
    for module in config["target_modules"]:
        a, b = (vectors.pop(f"base_model.model.{module}.lora_{name}.weight").double() for name in "AB")
        change = config["lora_alpha"] / config["r"] * b @ a
        model.get_submodule(module).weight.data += change.T if config["fan_in_fan_out"] else change
    assert not vectors


def in_peft(folder, adapters):
    """The model with the adapters in PEFT itself; None: it is not installed."""
    try:
        import peft
    except ImportError:
        print("PEFT is not installed: its format is computed here")
        return None
    return peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(folder), adapters).double()


def merge(model, adapters, data, want):
    """Adapters that are merged when the model is loaded: the weights are those of `want`."""
    with tempfile.TemporaryDirectory() as out:
        gyre("gyre-train", "--load", model, "--load-adapters", adapters, "--data", data, "--tokenizer", "none", "--seq", "32", "--steps", "0",
             "--eval-sequences", "4", "--report", "none", "--sample-tokens", "0", "--save", f"{out}/merged/")
        got = transformers.AutoModelForCausalLM.from_pretrained(f"{out}/merged").state_dict()
    error = max((value - got[name]).abs().max().item() for name, value in want.state_dict().items())
    print(f"merged by --load-adapters: weights differ by {error:.1e}")
    assert error < 1e-6


def check_modules(folder, data):
    """Adapters of models whose modules are of other forms: [in, out], q, k, v by head, or side by side, shared keys and values."""
    size = {"vocab_size": 360, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    longer = dict(size, intermediate_size=64, max_position_embeddings=SEQ)
    for config in (transformers.GPT2Config(vocab_size=360, n_embd=32, n_layer=2, n_head=4, n_positions=SEQ), transformers.GPTNeoXConfig(**longer),
                   transformers.BloomConfig(vocab_size=360, hidden_size=32, n_layer=2, n_head=4),
                   transformers.Phi3Config(**longer, num_key_value_heads=2, pad_token_id=0), transformers.Qwen2Config(**longer, num_key_value_heads=2)):
        model, merged, adapters = (f"{folder}/{config.model_type}{end}" for end in ("", "-merged", "-adapters"))
        torch.manual_seed(2)
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(model)
        gyre("gyre-train", "--load", model, "--data", data, "--tokenizer", "none", "--seq", "32", "--batch", "4", "--steps", "5", "--lr", "0.05", "--warmup",
             "1", "--lora", "3", "--lora-alpha", "7.5", "--lora-on", "*.0.*,*.1.*att*", "--eval-sequences", "4", "--report", "none",
             "--sample-tokens", "0", "--save", f"{merged}/", "--save-adapters", adapters)
        plain, exported, whole = (transformers.AutoModelForCausalLM.from_pretrained(path).double() for path in (model, model, merged))
        add_exported(exported, adapters)
        merge(model, adapters, data, transformers.AutoModelForCausalLM.from_pretrained(merged))
        other = f"{adapters}-other"
        shutil.copytree(adapters, other)
        vectors = safetensors.torch.load_file(f"{adapters}/adapter_model.safetensors")
        safetensors.torch.save_file({name: (value + 0.1 * torch.randn_like(value)).bfloat16() for name, value in vectors.items()},
                                    f"{other}/adapter_model.safetensors")
        want = transformers.AutoModelForCausalLM.from_pretrained(model).double()
        add_exported(want, other)
        merge(model, other, data, want)
        ids = torch.tensor([list(range(0, 360, 12))])
        with torch.no_grad():
            base, want = (one(ids).logits for one in (plain, whole))
            for name, other in {"exported": exported, "in PEFT": in_peft(model, adapters)}.items():
                if not other:
                    continue
                error = (want - other(ids).logits).abs().max().item()
                print(f"{config.model_type}: logits of up to {want.abs().max().item():.2f}: merged and {name} differ by {error:.1e}")
                assert error < 1e-5 < 1e-2 < (want - base).abs().max().item()


def check_answers(folder, model_folder):
    """Fine-tuned and saved as a folder, the model answers in `transformers`; so it does after adapters of that model were trained on other
    answers. The logits of the merged weights are those of the model with its adapters next to them."""
    tuned, _ = tune(folder, model_folder, {"cat": "tac", "dog": "god", "sun": "nus", "tea": "aet", "red": "der"})
    _, merged = tune(folder, tuned, {"cat": "meow", "dog": "wuff", "sun": "hot", "tea": "hot", "red": "rose"}, "--lora", "8", "--leaves", "1",
                     "--save-adapters", f"{folder}/exported", "--checkpoint", f"{folder}/adapters", "--checkpoint-every", "0")
    model = transformers.AutoModelForCausalLM.from_pretrained(tuned).double()
    add_adapters(model, f"{folder}/adapters")
    exported = transformers.AutoModelForCausalLM.from_pretrained(tuned).double()
    add_exported(exported, f"{folder}/exported")
    others = {"merged": merged.double(), "exported": exported, "in PEFT": in_peft(tuned, f"{folder}/exported")}
    ids = torch.tensor([list(range(0, 360, 5))])
    with torch.no_grad():
        apart = model(ids).logits
        for name, other in others.items():
            if not other:
                continue
            error = (apart - other(ids).logits).abs().max().item()
            print(f"logits of up to {apart.abs().max().item():.2f}: {name} and apart differ by {error:.1e}")
            assert error < 1e-5


def main():
    with open("tests/support/english.txt", encoding="utf-8") as file, tempfile.TemporaryDirectory() as folder:
        text = file.read()
        tokenizer = small_bpe.train(text, 360, ("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
        tokenizer.chat_template = CHATML
        model_folder, chats, out = (f"{folder}/{name}" for name in ("model", "chats.jsonl", "chats.gyt"))
        torch.manual_seed(1)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=SEQ, initializer_range=0.1))
        model.save_pretrained(model_folder)
        tokenizer.save_pretrained(model_folder)
        talks = list(conversations(text.split()))
        with open(chats, "w", encoding="utf-8") as lines:
            lines.writelines(json.dumps({"messages": talk}) + "\n" for talk in talks)
        gyre("gyre-tokenize", "--tokenizer", f"{model_folder}/tokenizer.json", "--jsonl", "--quiet", "--out", out, chats)
        documents = list(read_tokens(out))
        want = [expected(tokenizer, talk) for talk in talks]
        assert documents == want, "ids or learned tokens differ"
        assert max(len(ids) for ids, _ in documents) <= SEQ + 1
        with torch.no_grad():
            loss = mean_loss(model.double(), documents).item()
        for sampling in ("packed", "padded"):
            log = f"{folder}/{sampling}"
            gyre("gyre-train", "--load", model_folder, "--data", out, "--valid-data", out, "--sampling", sampling, "--steps", "1",
                 "--lr", "1e-9",
                 "--batch", "1" if sampling == "packed" else "60", "--eval-sequences", "1000", "--report", "none",
                 "--sample-tokens", "0", "--log", log)
            with open(log, encoding="utf-8") as lines:
                lines = [json.loads(line) for line in lines]
            got = next(line["val_loss"] for line in lines if "val_loss" in line)
            print(f"{sampling}: loss {got:.9f}, transformers {loss:.9f}")
            assert abs(got - loss) < 2e-6 * loss
        step = next(line for line in lines if line.get("step") == 1) # of all documents, padded
        mean_loss(model, documents).backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters())).item()
        print(f"gradient norm {step['grad_norm']:.9f}, transformers {norm:.9f}")
        assert abs(step["loss"] - loss) < 2e-6 * loss and abs(step["grad_norm"] - norm) < 1e-5 * norm
        check_answers(folder, model_folder)
        check_modules(folder, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
