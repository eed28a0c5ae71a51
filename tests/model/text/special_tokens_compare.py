#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The ids of a text, with what stands in front of it, are those of `transformers` for folders as models have them: gyre-eval says them
with its log-probabilities. Llama, Gemma, Llama 3, DeepSeek, Qwen and OPT, each with the tokenizer.json or the older files."""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

try:
    import sentencepiece
    import tokenizers
    import transformers
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers
except ImportError as lacking:
    print(f"skipped: {lacking.name} is not installed (tools/setup references)")
    sys.exit(77)

BUILD = os.environ.get("B", "build")
VOCAB = 600
TEXTS = ["Hello world, how are you?", " 12 345\n\nthe answer is \u00fcber-yes", "a"]


def run(*words):
    done = subprocess.run([f"{BUILD}/bin/{words[0]}", *words[1:]], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, (words, done.stderr)
    return done.stderr


def write(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)


def make_model(folder):
    """A Llama of VOCAB ids that knows nothing."""
    write(f"{folder}/llama.json", {"model_type": "llama", "vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
                                   "num_attention_heads": 2, "max_position_embeddings": 64})
    with open(f"{folder}/ids.bin", "wb") as file:
        file.write(struct.pack("<2000H", *(i % VOCAB for i in range(2000))))
    run("gyre-train", "--model", f"{folder}/llama.json", "--data", f"{folder}/ids.bin", "--data-format", "nanogpt", "--seq", "64", "--batch", "1",
        "--steps", "1", "--report", "none", "--save", f"{folder}/model/")


def byte_level(corpus, processor=None):
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator([corpus], trainers.BpeTrainer(vocab_size=400, special_tokens=["<|begin|>", "<|end|>"], show_progress=False,
                                                           initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if processor:
        made.post_processor = processor
    return made


def library(folder, corpus, name, **ids):
    with open(f"{folder}/corpus", "w", encoding="utf-8") as file:
        file.write(corpus)
    sentencepiece.SentencePieceTrainer.train(input=f"{folder}/corpus", model_prefix=f"{folder}/{name}", vocab_size=400, model_type="bpe", byte_fallback=True,
                                             hard_vocab_limit=False, minloglevel=2, normalization_rule_name="identity", remove_extra_whitespaces=False, **ids)
    return f"{folder}/{name}.model"


class Folders:
    def __init__(self, top, corpus):
        self.top, self.corpus, self.names = top, corpus, []

    def new(self, name):
        folder = f"{self.top}/{name}"
        shutil.copytree(f"{self.top}/model", folder)
        self.names.append(name)
        return folder

    def of(self, name, tokenizer, **config):
        """As `tokenizer` is saved, with more in tokenizer_config.json."""
        folder = self.new(name)
        tokenizer.save_pretrained(folder)
        with open(f"{folder}/tokenizer_config.json", encoding="utf-8") as file:
            write(f"{folder}/tokenizer_config.json", json.load(file) | config)
        return folder

    def byte_level(self):
        fast = transformers.PreTrainedTokenizerFast
        begin = processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A $B", special_tokens=[("<|begin|>", 0)])
        both = processors.Sequence([processors.ByteLevel(trim_offsets=False), begin])
        ends = {"bos_token": "<|begin|>", "eos_token": "<|end|>"}
        self.of("llama3", fast(tokenizer_object=byte_level(self.corpus, both), **ends))
        plain = byte_level(self.corpus, processors.ByteLevel(trim_offsets=False))
        self.of("qwen", fast(tokenizer_object=plain, **ends), tokenizer_class="Qwen2Tokenizer", add_bos_token=False)
        self.of("deepseek", fast(tokenizer_object=plain, **ends), tokenizer_class="LlamaTokenizer", add_bos_token=True, add_eos_token=False)
        folder = self.new("opt")
        plain.model.save(folder)
        with open(f"{folder}/vocab.json", encoding="utf-8") as file:
            write(f"{folder}/vocab.json", json.load(file) | {"<|begin|>": 0, "<|end|>": 1})
        write(f"{folder}/tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "bos_token": {"content": "<|end|>", "__type": "AddedToken"},
                                                  "eos_token": "<|end|>", "unk_token": "<|end|>"})

    def characters(self):
        llama = library(self.top, self.corpus, "llama", unk_id=0, bos_id=1, eos_id=2)
        gemma = library(self.top, self.corpus, "gemma", pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", bos_piece="<bos>", eos_piece="<eos>")
        for name, path, kind in (("llama", llama, transformers.LlamaTokenizerFast), ("gemma", gemma, transformers.GemmaTokenizerFast)):
            self.of(name, kind(path))
            self.of(f"{name} without", kind(path, add_bos_token=False))
            folder = self.of(f"{name} model", kind(path))
            os.remove(f"{folder}/tokenizer.json")
            folder = self.of(f"{name} model without", kind(path, add_bos_token=False))
            os.remove(f"{folder}/tokenizer.json")
        shutil.copy(llama, f"{self.new('llama model alone')}/tokenizer.model")


def ids_of(folder, text, *options):
    """As gyre-eval reads the text."""
    with open(f"{folder}/text", "w", encoding="utf-8", newline="") as file:
        file.write(text)
    run("gyre-eval", "--load", folder, "--quiet", "--json", f"{folder}/json", "--logprobs", f"{folder}/log", *options, f"{folder}/text")
    with open(f"{folder}/json", encoding="utf-8") as file:
        begin = json.load(file)["bos"]
    with open(f"{folder}/log", encoding="utf-8") as file:
        return begin, [json.loads(line)["token"] for line in file]


def begin_of(reference):
    return reference.convert_ids_to_tokens(reference("a")["input_ids"][:-len(reference("a", add_special_tokens=False)["input_ids"])])


def main():
    with open("tests/support/english.txt", encoding="utf-8") as file:
        corpus = file.read()[:20000]
    with tempfile.TemporaryDirectory() as top:
        make_model(top)
        folders = Folders(top, corpus)
        folders.byte_level()
        folders.characters()
        without = "cannot read" in subprocess.run([f"{BUILD}/bin/gyre-tokenize", "--tokenizer", f"{top}/llama.model", "--out", f"{top}/out", "README.md"],
                                                  capture_output=True, text=True, check=False).stderr
        for name in folders.names:
            if without and "model" in name:
                continue
            folder = f"{top}/{name}"
            reference = transformers.AutoTokenizer.from_pretrained(folder, use_fast="model" not in name)
            for text in TEXTS:
                want = reference(text)["input_ids"]
                plain = reference(text, add_special_tokens=False)["input_ids"]
                if len(want) < 2: # the first is not scored, so that gyre-eval refuses it
                    continue
                begin, ids = ids_of(folder, text)
                assert begin == want[:len(want) - len(plain)] and ids == want[1:], f"{name}: {text!r} is {begin} and {ids}, not {want}"
                if len(plain) > 1:
                    begin, ids = ids_of(folder, text, "--no-bos")
                    assert begin == [] and ids == plain[1:], f"{name}: {text!r} without is {begin} and {ids}, not {plain}"
            print(f"{name}: begins with {begin_of(reference)}")
    if without:
        print("skipped: this build is without SentencePiece (tools/setup check): tokenizer.json agrees")
        sys.exit(77)


main()
