#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tokenizer.json of every kind that Gyre reads, and SentencePiece's .model files, against the libraries they are from: the same
ids for random strings, with special tokens in the text and without, and the same text back. Small tokenizers are trained here, then
given the normalizers, pre-tokenizers and decoders of the models in docs/models.md, and the others that there are.

Strings have emoji, combining marks, long runs of spaces, special and added tokens, code points of all planes; bytes that are not
UTF-8 are compared with the references on what Python's decoder makes of them (errors="replace"). Code points that this Python's
Unicode does not know are left out: their categories depend on whose tables are newer.
TOKENIZER_STRINGS: how many strings for each tokenizer (300); ONLY=WORD: tokenizers whose name has the word.
"""
import base64
import contextlib
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

try:
    import sentencepiece
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, trainers
except ImportError as lacking:
    print(f"skipped: {lacking.name} is not installed (tools/setup references)")
    sys.exit(77)

BUILD = os.environ.get("B", "build")
STRINGS = int(os.environ.get("TOKENIZER_STRINGS", "300"))
ONLY = os.environ.get("ONLY", "")
MARK = "\u2581"
DOCUMENTS = ["docs/architecture.md", "docs/glossary.md", "CHANGELOG.md"]

# ---- strings ---------------------------------------------------------------------------------------------------------------
SPACES = [9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x200F), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF,
          0x1C, 0x1F]
EMOJI = ["\U0001F600", "\U0001F468\u200D\U0001F469\u200D\U0001F467", "\U0001F1E9\U0001F1EA", "\U0001F44D\U0001F3FD", "\u2764\uFE0F", "1\uFE0F\u20E3"]
ODD = ["e\u0301", "\u00e9", "A\u030a", "\u212b", "\ufb01", "\u1e9b\u0323", "\uac00", "\u1100\u1161\u11a8", "q\u0307\u0323", "\u0130", "\u03a3", "\u0958",
       "\uff21\uff11", "\u2460", "\u33a5", "\u00bd", "\u0e33", "\u0915\u094d\u0937", "\u4e2d\u6587", "\u3053\u3093", "\u304c", "\u304b\u3099", MARK, MARK + MARK, "\ufffd", "_", "<0x41>"]
ENDINGS = [" ", "", "  ", "\n", "'s", "'S", "'\u017f", "'LL", ".", "\r\n\n", "/", "\t ", ",", "!?", "\u3002"]
ADDED = ["<s>", "</s>", "<unk>", "<|endoftext|>", "<|im_start|>", "<|user|>", "<mask>", "[WORD]", "added word", "<tool>", "    ", "\n\n", "caf\u00e9", "[CLS]", "[UNK]", "[MASK]", "##s",
         "cafe\u0301"]


def character(rng):
    while True:
        kind = rng.random()
        c = (rng.choice(SPACES) if kind < 0.2 else rng.randint(32, 126) if kind < 0.5 else rng.randint(0xA0, 0x52F) if kind < 0.65
             else rng.randint(1, 0xFFFF) if kind < 0.9 else rng.randint(0x10000, 0x1FFFF))
        if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) != "Cn":
            return chr(c)


def string(rng, words):
    out = []
    for _ in range(rng.randint(0, rng.choice([4, 12, 40]))):
        kind = rng.random()
        out.append(rng.choice(words) + rng.choice(ENDINGS) if kind < 0.35 else " " * rng.randint(1, 90 if kind < 0.36 else 9) if kind < 0.42
                   else str(rng.randint(0, 10 ** rng.randint(1, 9))) if kind < 0.46 else rng.choice(EMOJI) if kind < 0.5
                   else rng.choice(ODD) if kind < 0.6 else rng.choice(["", " ", "  "]) + rng.choice(ADDED) + rng.choice(["", " ", "\n", "x"])
                   if kind < 0.7 else rng.choice(words) * rng.randint(1, 9) if kind < 0.74 else character(rng))
    return "".join(out)


def broken(rng, words):
    data = bytearray(string(rng, words).replace("\0", "").encode())
    for _ in range(rng.randint(1, 5)):
        at = rng.randint(0, len(data))
        data[at:at + rng.randint(0, 1)] = rng.choice([b"\xff", b"\xe2\x82", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\x80", b"\x80", b"\xf4\x90\x80\x80"])
    return bytes(data)


# ---- tokenizers ------------------------------------------------------------------------------------------------------------
def flags(content, number, special=True, **others):
    return {"id": number, "content": content, "special": special, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": not special, **others}


def whole(model, *, added=(), normalizer=None, pre=None, decoder=None):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added), "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": None, "decoder": decoder, "model": model}


def sequence(kind, *parts):
    return {"type": "Sequence", kind: list(parts)}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def bytes_of(vocab):
    for b in range(256):
        vocab[f"<0x{b:02X}>"] = len(vocab)


def bpe(text, size, *, mark, fallback=True, **others):
    """BPE of characters, with marks for spaces or without; specials first, as in Llama 2."""
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace() if mark else pre_tokenizers.Whitespace()
    trained.train_from_iterator(text, trainers.BpeTrainer(vocab_size=size, show_progress=False))
    learned = json.loads(trained.to_str())["model"]
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    if fallback:
        bytes_of(vocab)
    for token in sorted(learned["vocab"], key=learned["vocab"].get):
        vocab.setdefault(token, len(vocab))
    merges = learned["merges"]
    if mark:  # runs of spaces, as Llama's vocabulary has them
        for width in (2, 4, 8):
            vocab.setdefault(MARK * width, len(vocab))
            merges.append([MARK * (width // 2), MARK * (width // 2)])
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": True, "byte_fallback": fallback, "ignore_merges": False, "vocab": vocab, "merges": merges, **others}
    return model, [flags("<unk>", 0), flags("<s>", 1), flags("</s>", 2)]


def byte_bpe(text, size, pre=None, **others):
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.train_from_iterator(text, trainers.BpeTrainer(vocab_size=size, show_progress=False,
                                                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    learned = json.loads(trained.to_str())["model"]
    learned.update(others)
    end = len(learned["vocab"])
    return learned, [flags(c, end + i) for i, c in enumerate(["<|endoftext|>", "<|im_start|>"])]


def words_of(text, size, kind, normalizer, **others):
    """WordPiece or WordLevel, and their special tokens."""
    ends = ["[UNK]", "[CLS]", "[SEP]", "<s>", "[MASK]"]
    trained = tokenizers.Tokenizer(getattr(models, kind)(unk_token="[UNK]"))
    trained.normalizer, trained.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
    trained.train_from_iterator(text, getattr(trainers, kind + "Trainer")(vocab_size=size, special_tokens=ends, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    return dict(model, **others), [flags(end, i, lstrip=end == "[MASK]") for i, end in enumerate(ends)]


@contextlib.contextmanager
def silent():
    """SentencePiece's trainer writes to standard error."""
    saved, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nothing)


def library(folder, name, text, **options):
    lines = os.path.join(folder, "lines")
    with open(lines, "w", encoding="utf-8") as file:
        file.write("\n".join(text))
    with silent():
        sentencepiece.SentencePieceTrainer.train(input=lines, model_prefix=os.path.join(folder, name), num_threads=1,
                                                 hard_vocab_limit=False, minloglevel=2, **options)
    return os.path.join(folder, name + ".model")


def fields(data):
    """(number, value) of each field of a protocol buffer; values are bytes or numbers."""
    def number(at):
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                return value, at
    at = 0
    while at < len(data):
        key, at = number(at)
        if key & 7 == 2:
            length, at = number(at)
            yield key >> 3, data[at:at + length]
            at += length
        elif key & 7 == 5:
            yield key >> 3, data[at:at + 4]
            at += 4
        else:
            value, at = number(at)
            yield key >> 3, value


def charsmap(path):
    with open(path, "rb") as file:
        data = file.read()
    spec = next(value for field, value in fields(data) if field == 3)
    return base64.b64encode(next(value for field, value in fields(spec) if field == 2)).decode()


def unigram(path, fallback=False):
    model = sentencepiece.SentencePieceProcessor(model_file=path)
    vocab = [[model.id_to_piece(i), model.get_score(i)] for i in range(model.get_piece_size())]
    named = [i for i in range(len(vocab)) if model.is_control(i) or model.is_unknown(i)]
    return {"type": "Unigram", "unk_id": model.unk_id(), "vocab": vocab, "byte_fallback": fallback}, \
        [flags(vocab[i][0], i) for i in named]


QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
DEEPSEEK = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]
LLAMA2 = sequence("decoders", replace(MARK, " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                  {"type": "Strip", "content": " ", "start": 1, "stop": 0})
GEMMA = sequence("decoders", replace(MARK, " "), {"type": "ByteFallback"}, {"type": "Fuse"})
PREPENDED = sequence("normalizers", {"type": "Prepend", "prepend": MARK}, replace(" ", MARK))


def level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def metaspace(scheme, cut=True, **others):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": cut, **others}


def tokenizers_of(text, folder):
    """(name, contents of tokenizer.json)."""
    model, ends = byte_bpe(text, 700)
    more = len(model["vocab"]) + len(ends)
    bytewise = level()
    # a decoder of the reference takes "caf\u00e9" for letters of bytes; Gyre gives the text
    runs = [flags("    ", more, False), flags("cafe\u0301", more + 1, False), flags("added word", more + 2, False, normalized=False)]
    yield "gpt-neox", whole(model, added=ends + runs, normalizer={"type": "NFC"}, pre=bytewise, decoder=bytewise)
    yield "qwen2", whole(model, added=ends, normalizer={"type": "NFC"}, pre=sequence("pretokenizers", split(QWEN), level(regex=False)),
                         decoder=bytewise)
    yield "llama3", whole(dict(model, ignore_merges=True), added=ends, pre=sequence("pretokenizers", split(LLAMA3), level(regex=False)),
                          decoder=bytewise)
    yield "deepseek", whole(model, added=ends, normalizer=sequence("normalizers"), decoder=bytewise, pre=sequence(
        "pretokenizers", *[split(p) for p in DEEPSEEK], {"type": "Digits", "individual_digits": True}, level(regex=False)))
    yield "roberta", whole(model, added=ends + [flags("<mask>", more, lstrip=True)], pre=level(prefix=True), decoder=bytewise)
    model, ends = bpe(text, 900, mark=True)
    more = len(model["vocab"])
    yield "llama2", whole(model, added=ends, normalizer=PREPENDED, decoder=LLAMA2)
    yield "phi3", whole(model, added=ends + [flags("<|user|>", more, rstrip=True), flags("<mask>", more + 1, lstrip=True),
                                             flags("[WORD]", more + 2, False, single_word=True), flags("<tool>", more + 3, False),
                                             flags("added word", more + 4, False, lstrip=True, rstrip=True)],
                        normalizer=PREPENDED, decoder=LLAMA2)
    yield "mistral", whole(model, added=ends, pre=metaspace("first", False), decoder=LLAMA2)
    yield "metaspace-always", whole(model, added=ends, pre=metaspace("always"), decoder=metaspace("always"))
    yield "metaspace-old", whole(model, added=ends, decoder=metaspace("never"),
                                 pre={"type": "Metaspace", "replacement": MARK, "add_prefix_space": True})
    runs = [flags("\n\n", more, False, normalized=False), flags(MARK * 3, more + 1, False, normalized=False)]
    yield "gemma", whole(model, added=ends + runs, normalizer=replace(" ", MARK), pre=split(" ", "MergedWithPrevious", kind="String"),
                         decoder=GEMMA)
    yield "whole-first", whole(dict(model, ignore_merges=True), added=ends, pre=metaspace("always"), decoder=LLAMA2)
    for b in range(128):  # without most byte tokens what is not ASCII is unknown
        del model["vocab"][f"<0x{255 - b:02X}>"]
    yield "few-bytes", whole(model, added=ends, normalizer=PREPENDED, decoder=LLAMA2)
    model, ends = bpe(text, 700, mark=False, fallback=False, fuse_unk=False)
    fused = dict(model, fuse_unk=True)
    cuts = {"whitespace": {"type": "Whitespace"}, "whitespace-split": {"type": "WhitespaceSplit"},
            "punctuation": {"type": "Punctuation", "behavior": "Contiguous"},
            "digits": sequence("pretokenizers", {"type": "Digits", "individual_digits": False}, {"type": "Punctuation"}),
            "delimiter": {"type": "CharDelimiterSplit", "delimiter": "e"}}
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        cuts["split-" + behavior] = split(r"[aeiou]|\s", behavior)
        cuts["inverted-" + behavior] = split(r"[a-m]+", behavior, True)
    for i, (name, pre) in enumerate(cuts.items()):
        yield name, whole(fused if i % 2 else model, added=ends, pre=pre, decoder=GEMMA)
    normals = {"nfd": {"type": "NFD"}, "nfkc": {"type": "NFKC"}, "nfkd": {"type": "NFKD"}, "lowercase": {"type": "Lowercase"},
               "strip": {"type": "Strip", "strip_left": True, "strip_right": True}, "nmt": {"type": "Nmt"},
               "accents": sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"}),
               "replace": sequence("normalizers", replace(r"\s+", " ", "Regex"), replace(r"^[a-m]|[n-z]$", "x", "Regex"), replace("th", "ht"))}
    for name, normalizer in normals.items():
        words = [flags("cafe\u0301", len(model["vocab"]), False), flags("[WORD]", len(model["vocab"]) + 1, False)]
        yield name, whole(model, added=ends + words, normalizer=normalizer, pre={"type": "WhitespaceSplit"}, decoder=GEMMA)
    path = library(folder, "t5", text, vocab_size=700, model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    model, ends = unigram(path)
    compiled = {"type": "Precompiled", "precompiled_charsmap": charsmap(path)}
    t5 = sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace("always"))
    yield "t5", whole(model, added=ends + [flags("<mask>", len(model["vocab"]), lstrip=True)], normalizer=compiled, pre=t5,
                      decoder=metaspace("always"))
    spaces = sequence("normalizers", compiled, replace(" {2,}", " ", "Regex"), {"type": "Strip", "strip_left": True, "strip_right": True})
    yield "t5-new", whole(model, added=ends, normalizer=spaces, pre=metaspace("always"), decoder=metaspace("always"))
    path = library(folder, "fold", text, vocab_size=800, model_type="unigram", byte_fallback=True, normalization_rule_name="nmt_nfkc_cf")
    model, ends = unigram(path, True)
    yield "unigram-bytes", whole(model, added=ends, normalizer=dict(compiled, precompiled_charsmap=charsmap(path)),
                                 pre=metaspace("first", False), decoder=LLAMA2)


    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    pieces, model_of = {"type": "WordPiece", "prefix": "##", "cleanup": True}, {"pre": {"type": "BertPreTokenizer"}}
    normal = normalizers.BertNormalizer()
    model, ends = words_of(text, 1500, "WordPiece", normal)
    yield "bert", whole(model, added=ends, normalizer=bert, decoder=pieces, **model_of)
    yield "bert-cased", whole(model, added=ends, normalizer=dict(bert, lowercase=False), decoder=dict(pieces, cleanup=False), **model_of)
    yield "bert-accents", whole(model, added=ends, normalizer=dict(bert, strip_accents=False, clean_text=False), decoder=None, **model_of)
    yield "bert-plain", whole(model, added=ends, normalizer=dict(bert, strip_accents=True, lowercase=False, handle_chinese_chars=False),
                              decoder=pieces, **model_of)

    def words():
        return [flags("caf\u00e9", len(model["vocab"]), False), flags("[WORD]", len(model["vocab"]) + 1, False, single_word=True)]
    yield "pieces-short", whole(dict(model, max_input_chars_per_word=5), added=ends + words(), normalizer={"type": "Lowercase"},
                                pre={"type": "Whitespace"}, decoder=pieces)
    yield "pieces-whole", whole(model, added=ends, pre={"type": "WhitespaceSplit"}, decoder=GEMMA)
    model, ends = words_of(text, 900, "WordPiece", normal, continuing_subword_prefix="@@")
    yield "pieces-other", whole(model, added=ends, normalizer=bert, decoder=dict(pieces, prefix="@@"), **model_of)
    model, ends = words_of(text, 900, "WordLevel", normal)
    yield "words", whole(model, added=ends, normalizer=bert, decoder=None, **model_of)
    yield "words-pieces", whole(model, added=ends + words(), pre={"type": "Whitespace"}, decoder=pieces)
    yield "words-marks", whole(dict(model, vocab={word if word in ("[UNK]", "[CLS]") else MARK + word: i for word, i in model["vocab"].items()}),
                               added=ends[:2], pre=metaspace("always"), decoder=metaspace("always"))


MODELS = {
    "llama": {"model_type": "bpe", "vocab_size": 900, "byte_fallback": True, "normalization_rule_name": "identity", "split_digits": True,
              "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True},
    "gemma-model": {"model_type": "bpe", "vocab_size": 900, "byte_fallback": True, "normalization_rule_name": "identity", "split_digits": True,
                    "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True, "add_dummy_prefix": False,
                    "user_defined_symbols": ["<tool>", "    "]},
    "t5-model": {"model_type": "unigram", "vocab_size": 700},
    "words-model": {"model_type": "unigram", "vocab_size": 600, "treat_whitespace_as_suffix": True},
}

# ---- the comparison --------------------------------------------------------------------------------------------------------


def tokens_of(path):
    with open(path, "rb") as file:
        data = file.read()
    bits, count, documents = struct.unpack_from("<IQQ", data, 12)
    at, table = struct.unpack_from("<QQ", data, 40)
    ids = struct.unpack_from(f"<{count}{'H' if bits == 16 else 'I'}", data, at)
    ends = struct.unpack_from(f"<{documents + 1}Q", data, table)
    return [list(ids[a:b]) for a, b in zip(ends, ends[1:])]


def of_one_age(text, content):
    """Whether all tables agree on the characters. Those of the reference are older: its Punctuation and marks are of Unicode 8."""
    if any(unicodedata.category(c) == "Cn" for c in text):
        return False
    if any(kind in json.dumps(content["pre_tokenizer"]) for kind in ("Punctuation", "BertPre")) and any(
            (unicodedata.category(c)[0] in "PC" or c == "\U000111c9") and ord(c) >= 0x600 and not 0x2000 <= ord(c) < 0x2070
            and not 0x3000 <= ord(c) < 0x3040 and not 0xFE30 <= ord(c) < 0xFF66 for c in text):
        return False
    young = [c for c in text if unicodedata.ucd_3_2_0.category(c) == "Cn" and (
        unicodedata.decomposition(c) or unicodedata.category(c)[0] == "M" or unicodedata.category(c) == "Cf" or c in "\u1cf2\u1cf3")]  # these two were marks then
    return not (young and any(kind in json.dumps(content["normalizer"]) for kind in ("NF", "StripAccents", "Bert")))


class Comparison:
    def __init__(self, folder, words):
        rng = random.Random(20261128)
        self.folder, self.compared, self.wrong, self.failed = folder, 0, 0, set()
        # characters of four bytes first: gyre-tokenize decodes some thousand tokens at a time
        self.strings = ["a" + "\U0001f467" * 1100] + [string(rng, words) for _ in range(STRINGS - 1)]
        self.lines = os.path.join(folder, "strings.jsonl")
        with open(self.lines, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": s}, ensure_ascii=i % 2 == 0) + "\n" for i, s in enumerate(self.strings))
        self.broken = [broken(rng, words) for _ in range(min(STRINGS, 300))]
        os.mkdir(os.path.join(folder, "broken"))
        for i, data in enumerate(self.broken):
            with open(os.path.join(folder, f"broken/{i:05}"), "wb") as file:
                file.write(data)

    def gyre(self, *words):
        return subprocess.run([f"{BUILD}/bin/gyre-tokenize", *words], check=True, stdout=subprocess.PIPE).stdout

    def encode(self, path, *words):
        out = os.path.join(self.folder, "out.gyt")
        self.gyre("--quiet", "--tokenizer", path, "--out", out, *words)
        return tokens_of(out)

    def differs(self, name, text, got, want):
        self.wrong += 1
        if name not in self.failed:
            print(f"{name}: {text!r} is {got!r}, not {want!r}")
        self.failed.add(name)

    def ids(self, name, got, texts, encode, agree=list.__eq__):
        assert len(got) == len(texts), (name, len(got), len(texts))
        for text, ids in zip(texts, got):
            want = encode(text)
            if not agree(ids, want):
                self.differs(name, text, ids, want)
        self.compared += len(texts)

    def some(self, name, got, texts, encode, fits):
        """Of those that fit."""
        assert len(got) == len(texts), (name, len(got), len(texts))
        pairs = [(ids, text) for ids, text in zip(got, texts) if fits(text)]
        self.ids(name, [ids for ids, _ in pairs], [text for _, text in pairs], encode)

    def text(self, name, path, ids, decode):
        got = self.gyre("--decode", os.path.join(self.folder, "out.gyt"), "--tokenizer", path)
        want = decode([i for document in ids for i in document])
        if got.decode(errors="replace") != want:
            at = next((i for i, (a, b) in enumerate(zip(got.decode(errors="replace"), want)) if a != b), min(len(got), len(want)))
            self.differs(name + ": decoding", at, got.decode(errors="replace")[max(0, at - 20):at + 20], want[max(0, at - 20):at + 20])

    def tokenizer(self, name, content):
        path = os.path.join(self.folder, "tokenizer.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)
        reference = tokenizers.Tokenizer.from_file(path)

        def encode(text):
            return reference.encode(text, add_special_tokens=False).ids

        unigram_special = {t["content"] for t in content["added_tokens"]} if content["model"]["type"] in ("Unigram", "WordPiece", "WordLevel") else ()
        taken = self.encode(path, "--specials", "--jsonl", self.lines)
        self.some(name + ": specials", taken, self.strings, encode, lambda text: of_one_age(text, content))
        self.text(name, path, taken, lambda ids: reference.decode(ids, skip_special_tokens=False))
        reference.encode_special_tokens = True
        # Gyre gives no special token from text, the reference's Unigram model does where the vocabulary has it
        def fits(text):
            return of_one_age(text, content) and not any(word in text for word in unigram_special)

        self.some(name, self.encode(path, "--jsonl", self.lines), self.strings, encode, fits)
        if content["pre_tokenizer"] is None or "ByteLevel" not in json.dumps(content["pre_tokenizer"]):
            texts = [data.decode(errors="replace") for data in self.broken]
            self.some(name + ": not UTF-8", self.encode(path, os.path.join(self.folder, "broken")), texts, encode, fits)

    def model(self, name, path):
        reference = sentencepiece.SentencePieceProcessor(model_file=path)
        scores = [reference.get_score(i) for i in range(reference.get_piece_size())]

        def agree(ids, want):
            """The same, or as likely to a rounding: the library of the system is another version than the reference."""
            return ids == want or (MODELS[name]["model_type"] == "unigram" and sorted(ids) == sorted(want) and
                                   abs(sum(scores[i] for i in ids) - sum(scores[i] for i in want)) < 1e-3)

        got = self.encode(path, "--jsonl", self.lines)
        self.ids(name, got, self.strings, reference.encode, agree)
        self.text(name, path, got, reference.decode)
        self.ids(name + ": not UTF-8", self.encode(path, os.path.join(self.folder, "broken")), self.broken, reference.encode, agree)


def main():
    text = []
    for name in DOCUMENTS:
        with open(name, encoding="utf-8") as file:
            text += [line for line in file.read().split("\n") if line.strip()]
    text += ["caf\u00e9 \u00fcber na\u00efve \u4e2d\u6587 \u3053\u3093 12 1234 hello  world"] * 20
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(folder, " ".join(text[:400]).split())
        for name, content in tokenizers_of(text, folder):
            if ONLY in name:
                comparison.tokenizer(name, content)
                count += 1
        without = "cannot read" in subprocess.run([f"{BUILD}/bin/gyre-tokenize", "--tokenizer", library(folder, "probe", text, vocab_size=500), "--out",
                                                   os.path.join(folder, "x"), "README.md"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                                  check=False).stderr.decode()
        for name, options in MODELS.items():
            if ONLY in name and not without:
                comparison.model(name, library(folder, name, text, **options))
                count += 1
        failed = {name.split(":")[0] for name in comparison.failed}
        print(f"{comparison.compared} strings compared, {comparison.wrong} different")
        print(f"{count - len(failed)} passed, {len(failed)} failed")
    if without and not comparison.wrong:
        print("skipped: this build is without SentencePiece (tools/setup check): tokenizer.json agrees")
        sys.exit(77)
    sys.exit(comparison.wrong > 0)


if __name__ == "__main__":
    main()
