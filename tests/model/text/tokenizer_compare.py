#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Random Unicode strings through gyre-tokenize and through tiktoken and Hugging Face's tokenizers, where they are installed:
the same ids, for the patterns of GPT-2, cl100k and o200k and for tokenizer.json with ByteLevel, Split and added tokens. The
vocabulary is learned here, from this repository's documents.

Code points that this Python's Unicode does not know are left out: whether they are letters depends on whose tables are newer.
TOKENIZER_STRINGS: how many strings (3000).
"""
import base64
import collections
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

try:
    import tiktoken
except ImportError:
    tiktoken = None
try:
    import tokenizers
except ImportError:
    tokenizers = None
if tiktoken is None and tokenizers is None:
    print("skipped: neither tiktoken nor tokenizers is installed (tools/setup references)")
    sys.exit(77)

BUILD = os.environ.get("B", "build")
STRINGS = int(os.environ.get("TOKENIZER_STRINGS", "3000"))
PATTERNS = {
    "gpt2": r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""",
    "cl100k": r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|"""
              r"""\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
    "o200k": "|".join([
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""", r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""", r"""\s*[\r\n]+""", r"""\s+(?!\S)""", r"""\s+"""]),
}
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
PLAIN = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
ORDER = PLAIN + [b for b in range(256) if b not in PLAIN]
LETTER = {b: chr(b) if b in PLAIN else chr(256 + i - len(PLAIN)) for i, b in enumerate(ORDER)}


def learn(text, merges):
    """Byte-pair merges of the words of a text, each with its leading space, most frequent first."""
    words = collections.Counter(tuple(bytes([b]) for b in (" " + w).encode()) for w in text.split())
    words = dict(words.most_common(1500))
    found, have = [], set()
    while len(found) < merges:
        pairs = collections.Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += n
        best = max((p for p in pairs if p[0] + p[1] not in have), key=lambda p: (pairs[p], p))
        found.append(best)
        have.add(best[0] + best[1])
        merged = {}
        for word, n in words.items():
            out, i = [], 0
            while i < len(word):
                if word[i:i + 2] == best:
                    out.append(word[i] + word[i + 1])
                    i += 2
                else:
                    out.append(word[i])
                    i += 1
            merged[tuple(out)] = merged.get(tuple(out), 0) + n
        words = merged
    return found


def letters(token):
    return "".join(LETTER[b] for b in token)


SPACES = [9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x200F), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF,
          0x1C, 0x1F, 0]
ENDINGS = [" ", "", "  ", "\n", "'s", "'S", "'\u017f", "'LL", "'ve", ".", "\r\n\n", "/", "\t "]


def character(rng):
    while True:
        kind = rng.random()
        c = (rng.choice(SPACES) if kind < 0.25 else rng.randint(32, 126) if kind < 0.45 else rng.randint(0xA0, 0x52F) if kind < 0.6
             else rng.randint(0, 0xFFFF) if kind < 0.85 else rng.randint(0x10000, 0x1FFFF))
        if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn":
            return chr(c)


def string(rng, words):
    out = []
    for _ in range(rng.randint(0, rng.choice([4, 12, 40]))):
        kind = rng.random()
        out.append(rng.choice(words) + rng.choice(ENDINGS) if kind < 0.3 else " " * rng.randint(1, 9) if kind < 0.35
                   else str(rng.randint(0, 10 ** rng.randint(1, 9))) if kind < 0.4
                   else rng.choice(words) * rng.randint(1, 9) if kind < 0.45 else character(rng))
    return "".join(out)


def tokens_of(path):
    with open(path, "rb") as file:
        data = file.read()
    bits, count, documents = struct.unpack_from("<IQQ", data, 12)
    at, table = struct.unpack_from("<QQ", data, 40)
    ids = struct.unpack_from(f"<{count}{'H' if bits == 16 else 'I'}", data, at)
    ends = struct.unpack_from(f"<{documents + 1}Q", data, table)
    return [list(ids[a:b]) for a, b in zip(ends, ends[1:])]


def main():
    rng = random.Random(20261121)
    with open("docs/architecture.md", encoding="utf-8") as file:
        text = file.read()
    merges = learn(text, 300)
    ranks = {bytes([b]): i for i, b in enumerate(ORDER)}
    for pair in merges:
        ranks[pair[0] + pair[1]] = len(ranks)
    end = len(ranks)
    strings = [string(rng, text.split()) for _ in range(STRINGS)]
    wrong = compared = 0
    with tempfile.TemporaryDirectory() as folder:
        def put(name, content):
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(content)
            return path

        lines = put("strings.jsonl", "".join(json.dumps({"text": s}, ensure_ascii=i % 2 == 0) + "\n" for i, s in enumerate(strings)))
        listed = put("merges.txt", "#version: 0.2\n" + "".join(f"{letters(a)} {letters(b)}\n" for a, b in merges))
        ranked = put("ranks.tiktoken", "".join(f"{base64.b64encode(t).decode()} {i}\n" for t, i in ranks.items()))

        def check(name, spec, encode):
            nonlocal wrong, compared
            out = os.path.join(folder, "out.gyt")
            subprocess.run([f"{BUILD}/bin/gyre-tokenize", "--quiet", "--tokenizer", spec, "--jsonl", "--out", out, lines],
                           check=True, stdout=subprocess.DEVNULL)
            got = tokens_of(out)
            assert len(got) == len(strings)
            for s, ids in zip(strings, got):
                want = encode(s)
                if ids != want:
                    wrong += 1
                    if wrong <= 5:
                        print(f"{name}: {s!r} is {ids}, not {want}")
            compared += len(strings)

        if tiktoken:
            for name, pattern in PATTERNS.items():
                reference = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": end})
                check(f"tiktoken {name}", f"{name}:{ranked}", reference.encode_ordinary)
        if tokenizers:
            level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
            steps, bloom = ({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
                {**level, "use_regex": False}]} for regex in (SPLIT, BLOOM))
            flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
            ends = [{"id": end, "content": "<|endoftext|>", "special": True, **flags}]
            more = [{"id": end + 1 + i, "content": c, "special": False, **flags} for i, c in enumerate(["  ", "the\n", "the\n "])]
            for name, pre, added, whole in (("ByteLevel", level, ends, False), ("Split", steps, ends + more, True),
                                             ("BLOOM", bloom, ends, False)):
                path = put("tokenizer.json", json.dumps({
                    "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
                    "pre_tokenizer": pre, "post_processor": None, "decoder": level,
                    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                              "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": whole,
                              "vocab": {letters(t): i for t, i in ranks.items()},
                              "merges": [f"{letters(a)} {letters(b)}" for a, b in merges]}}))
                reference = tokenizers.Tokenizer.from_file(path)
                check(f"tokenizers {name}", path, lambda s: reference.encode(s, add_special_tokens=False).ids)
            reference = tokenizers.Tokenizer(tokenizers.models.BPE({letters(t): i for t, i in ranks.items()},
                                                                   [(letters(a), letters(b)) for a, b in merges]))
            reference.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
            check("merges.txt", listed, lambda s: reference.encode(s, add_special_tokens=False).ids)
    print(f"{compared} strings compared, {wrong} different")
    missing = [name for name, module in (("tiktoken", tiktoken), ("tokenizers", tokenizers)) if module is None]
    if missing and not wrong:
        print(f"skipped: {missing[0]} is not installed (tools/setup references): the other agrees")
        sys.exit(77)
    sys.exit(wrong > 0)


main()
