#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What stands in front of a text, and where a model's text ends: by the files of its folder, or by --no-bos and --stop.
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
# says FILE OPTION...: the ids of texts of 40 tokens at most to FILE
says() {
    local file=$1
    shift
    timeout 60 "$B/bin/gyre-generate" --quiet --tokens 40 --temperature 100 --logprobs log "$@" >out 2>err || bad "$file: $(cat err)"
    grep -o '"token":[0-9]*' log | cut -d: -f2 >"$file"
}
says all --prompt 12 --load model --ignore-eot
check "40 tokens" test "$(wc -l <all)" = 40
# ends in N: the text ends after N tokens, which are the first of `all`
ends() {
    local n=$1
    shift
    says said --prompt 12 --load model "$@"
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
says all --prompt 12 --load run --ignore-eot --tokenizer model/tokenizer.json
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

# ---- the beginning ----
# begins IDS OPTION...: gyre-eval says that these are in front of a text, and they are
begins() {
    local ids=$1 count
    shift
    timeout 60 "$B/bin/gyre-eval" --load model --quiet --json eval.json --limit 60 text "$@" >out 2>err || bad "$ids: $(cat err)"
    check "bos $ids: $(grep -A3 bos eval.json | tr -d '\n ')" \
        python3 -c 'import json, sys; sys.exit(json.load(open("eval.json"))["bos"] != json.loads(sys.argv[1]))' "$ids"
    count=$(python3 -c 'import json, sys; print(2 + len(json.loads(sys.argv[1])))' "$ids")
    timeout 60 "$B/bin/gyre-generate" --load model --prompt 12 --tokens 1 "$@" >out 2>err || bad "$ids: $(cat err)"
    check "a prompt of $count tokens" grep -q " after 1 prompt of $count in " err
}
python the files of beginnings <<'PY'
import json
plain = json.load(open("tokenizer.json"))
def template(*pieces):
    single = [{"Sequence": {"id": "A", "type_id": 0}} if piece == "A" else {"SpecialToken": {"id": piece, "type_id": 0}} for piece in pieces]
    special = {"<s>": 256, "</s>": 257, "<|eot_id|>": 258}
    return {"type": "TemplateProcessing", "single": single, "pair": [],
            "special_tokens": {word: {"id": word, "ids": [i], "tokens": [word]} for word, i in special.items()}}
level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
roberta = {"type": "RobertaProcessing", "sep": ["</s>", 257], "cls": ["<s>", 256], "trim_offsets": True, "add_prefix_space": False}
for name, processor in (("one", template("<s>", "A")), ("framed", template("<s>", "A", "</s>")), ("end", template("A", "</s>")),
                        ("two", template("<s>", "<|eot_id|>", "A")), ("level", level), ("roberta", roberta),
                        ("both", {"type": "Sequence", "processors": [level, template("<s>", "A")]})):
    json.dump(plain | {"post_processor": processor}, open(name + ".tok", "w"))
for name, config in (("never", {"add_bos_token": False, "bos_token": "<s>"}), ("always", {"add_bos_token": True, "bos_token": {"content": "<s>"}}),
                     ("another", {"add_bos_token": True, "bos_token": "<|eot_id|>"}), ("unsaid", {"bos_token": "<s>"})):
    json.dump(config, open(name + ".cfg", "w"))
for token in plain["added_tokens"]: # they come of text
    token["special"] = False
json.dump(plain, open("fromtext.json", "w"))
PY
begins '[]'
for case in 'one [256]' 'framed [256]' 'end []' 'two [256,258]' 'level []' 'roberta [256]' 'both [256]'; do
    cp "${case%% *}.tok" model/tokenizer.json
    begins "${case#* }"
done
begins '[]' --no-bos
for case in 'never []' 'always [256]' 'another [258]' 'unsaid [256]'; do
    cp "${case%% *}.cfg" model/tokenizer_config.json
    begins "${case#* }"
done
cp tokenizer.json model
begins '[]'
cp always.cfg model/tokenizer_config.json
begins '[256]'
# it is the token that stands in front of a prompt, a text and a context
printf '12\n\n34 5\n' >prompts
printf '<s>12\n<s>34 5\n' >marked
says one --load model --ignore-eot --lines --echo --prompt-file prompts
mv out one.text
mv log one.log
says other --load model --ignore-eot --lines --prompt-file marked --tokenizer fromtext.json
check "prompts" cmp one.log log
check "the token is no part of the text" grep -qF '{"prompt":0,"before":"12","text":"' one.text
says other --load model --ignore-eot --no-bos --lines --prompt-file prompts
check "--no-bos changes nothing" test "$(cmp -s one.log log || echo no)" = no
mv log other.log
says plain --load model --ignore-eot --lines --prompt-file prompts --tokenizer tokenizer.json
check "--no-bos" cmp other.log log
says empty --load model --prompt-file /dev/null
check "from the beginning alone" test "$(wc -l <empty)" = 40
seq 1 40 >part
sed '1s/^/<s>/' part >marked
printf '{"activity_label":"%sa","ctx_a":"b","ctx_b":"c","endings":["d","e f"],"label":0}\n' "" >some.jsonl
printf '{"activity_label":"%sa","ctx_a":"b","ctx_b":"c","endings":["d","e f"],"label":0}\n' "<s>" >markedsome.jsonl
# evaluated NAME OPTION...: log-probabilities to NAME.log
evaluated() {
    local name=$1
    shift
    timeout 60 "$B/bin/gyre-eval" --load model --quiet --logprobs "$name.log" --json "$name.json" "$@" >out 2>err || bad "$name: $(cat err)"
}
evaluated text part
evaluated textmarked --tokenizer fromtext.json --no-bos marked
check "a text" cmp text.log textmarked.log
check "every byte of it is scored" python3 -c 'import json, os
row = json.load(open("text.json"))["results"][0]
assert row["bytes"] == row["tokens"] == os.path.getsize("part"), row'
evaluated ids --tokenizer tokenizer.json text.gyt --limit 60
check "token files are read as they are" grep -q '"tokens": 59,' ids.json
evaluated choices --task hellaswag some.jsonl
evaluated choicesmarked --task hellaswag --tokenizer fromtext.json --no-bos markedsome.jsonl
check "a context" cmp choices.log choicesmarked.log
finish
