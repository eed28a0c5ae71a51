#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Where a model's text ends: by the files of its folder, or by --stop.
. "$(dirname "$0")/../../support/lib.sh"
B=$(cd "$B" && pwd)
UCX_RUN=$B/bin/ucx-run
cd "$W" || exit 1
python() { python3 - "$@" || bad "$*"; }
seq 1 2000 >text
mkdir model
# 256 bytes and three special tokens
python the tokenizer <<'PY'
import json
keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
letters = [chr(b) for b in keep] + [chr(256 + i) for i in range(256 - len(keep))]
special = [{"id": 256 + i, "content": c, "special": True} for i, c in enumerate(["<s>", "</s>", "<|eot_id|>"])]
json.dump({"added_tokens": special, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
           "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(letters)}, "merges": []}}, open("tokenizer.json", "w"))
json.dump({"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2, "vocab_size": 259, "n_positions": 64}, open("config.json", "w"))
PY
"$B/bin/gyre-tokenize" --quiet --tokenizer tokenizer.json --out text.gyt text 2>/dev/null || bad "gyre-tokenize"
"$B/bin/gyre-train" --model config.json --data text.gyt --batch 2 --seq 64 --steps 1 --report none --sample-tokens 0 --checkpoint run --save model/ \
    >train.log 2>&1 || bad "gyre-train: $(tail -n 3 train.log)"
cp tokenizer.json model

# ---- ends ----
# says FILE OPTION...: the ids of a text of 40 tokens at most to FILE
says() {
    local file=$1
    shift
    timeout 60 "$B/bin/gyre-generate" --quiet --prompt 12 --tokens 40 --temperature 100 --logprobs log "$@" >out 2>err || bad "$file: $(cat err)"
    grep -o '"token":[0-9]*' log | cut -d: -f2 >"$file"
}
says all --load model --ignore-eot
check "40 tokens" test "$(wc -l <all)" = 40
# ends in N: the text ends after N tokens, which are the first of `all`
ends() {
    local n=$1
    shift
    says said --load model "$@"
    check "$n tokens of $(wc -l <said): $*" cmp said <(head -n "$n" all)
}
ends 40
python the files of ends <<'PY'
import json
ids = list(map(int, open("all")))
first = [n for n, i in enumerate(ids) if i not in ids[:n] and i < 94] # ASCII
a, b, c, d = first[3:7]
for name, content in (("generation", {"eos_token_id": [9999, 258, ids[a]]}), ("number", {"eos_token_id": ids[b]}), ("null", {"eos_token_id": None}),
                      ("long", {"eos_token": {"content": chr(33 + ids[c])}, "model_max_length": 10 ** 30}), ("short", {"eos_token": chr(33 + ids[d])})):
    json.dump(content, open(name + ".json", "w"))
config = json.load(open("model/config.json"))
json.dump(config | {"eos_token_id": ids[b]}, open("with.json", "w"))
open("places", "w").write(" ".join(str(n + 1) for n in (a, b, c, d)) + " " + chr(33 + ids[a]))
PY
read -r a b c d word <places
cp model/config.json without.json
cp with.json model/config.json
cp long.json model/tokenizer_config.json
cp generation.json model/generation_config.json
ends "$a"
ends 40 --ignore-eot
ends "$a" --ignore-eot --stop "$word"
cp number.json model/generation_config.json
ends "$b"
timeout 60 "$UCX_RUN" -n 2 "$B/bin/gyre-generate" --load model --quiet --prompt 12 --tokens 40 --temperature 100 --logprobs log >out 2>err || bad "2 ranks: $(cat err)"
check "two ranks end as one does" test "$(wc -l <log)" = "$b"
cp null.json model/generation_config.json
ends "$b"
rm model/generation_config.json
ends "$b"
cp without.json model/config.json
ends "$c"
cp short.json model/tokenizer_config.json
ends "$d"
# of a checkpoint, whose folder says nothing, the folder of the tokenizer does
says all --load run --ignore-eot --tokenizer model/tokenizer.json
ends "$d" --load run --tokenizer model/tokenizer.json
cp number.json model/generation_config.json
ends "$b" --load run --tokenizer model/tokenizer.json
"$B/bin/gyre-generate" --load model --prompt 12 --stop "no such" >out 2>err
check "--stop of no token: exit status" test $? = 2
check "--stop of no token" grep -q "has no token of that text" err
echo '{' >model/generation_config.json
"$B/bin/gyre-generate" --load model --prompt 12 >out 2>err
check "a file that cannot be read: exit status" test $? = 2
check "a file that cannot be read" grep -q "model/generation_config.json:.*not valid JSON" err
rm model/generation_config.json model/tokenizer_config.json
finish
