#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gyre-eval: the perplexity of a text is the trainer's validation loss, to the bit; log-probabilities are the same on any ranks,
# in batches and windows; choices have those of the trainer's forward over the same text; accuracies are those of the
# definitions; and what it refuses.
. "$(dirname "$0")/../support/lib.sh"
B=$(cd "$B" && pwd)
UCX_RUN=$B/bin/ucx-run
EVAL=$B/bin/gyre-eval
QUESTIONS=$PWD/tests/pipeline/evaluate_questions.py
cd "$W" || exit 1
for i in $(seq 40); do echo "The quick brown fox number $i jumps over the lazy dog."; done >text
"$B/bin/gyre-train" --data text --layers 2 --hidden 64 --heads 4 --seq 192 --batch 4 --steps 6 --lr 0.01 --checkpoint run \
    --save one.safetensors --report none --sample-tokens 0 >train.log 2>&1 || bad "gyre-train: $(tail -n 3 train.log)"

# run NAME OPTION...: table to NAME.text, results to NAME.json, log-probabilities to NAME.log
run() {
    local name=$1
    shift
    timeout 60 "$EVAL" --load run --quiet --json "$name.json" --logprobs "$name.log" "$@" >"$name.text" 2>"$name.err" ||
        bad "$name: $(cat "$name.err")"
}
ranks() { # N NAME OPTION...: the same on N ranks
    local n=$1 name=$2
    shift 2
    timeout 60 "$UCX_RUN" -n "$n" "$EVAL" --load run --quiet --json "$name.json" --logprobs "$name.log" "$@" >"$name.text" 2>"$name.err" ||
        bad "$name: $(cat "$name.err")"
}
# same A B: the same results with the same bits
same() {
    check "the log-probabilities of $1 and $2 differ" cmp "$1.log" "$2.log"
    check "the results of $1 and $2 differ" cmp "$1.json" "$2.json"
    check "the tables of $1 and $2 differ" cmp "$1.text" "$2.text"
}
# python NAME: a script from standard input, whose failed assertion is the test's
python() { python3 - || bad "$1"; }

# ---- perplexity ----
# five windows: the trainer's loss of the same text
head -c 961 text >whole
"$B/bin/gyre-train" --data text --valid-data whole --load one.safetensors --batch 4 --steps 0 --log loss.jsonl --report none \
    --sample-tokens 0 >train.log 2>&1 || bad "gyre-train: $(tail -n 3 train.log)"
run whole whole
python "the trainer's validation loss" <<'PY'
import json, math
row = json.load(open("whole.json"))["results"][0]
losses = [json.loads(line).get("val_loss") for line in open("loss.jsonl")]
assert row["nats_per_token"] == float.fromhex(row["nats_per_token_hex"]) and row["nats_per_token"] in losses, (row, losses)
assert (row["tokens"], row["windows"], row["bytes"]) == (960, 5, 960), row
assert math.isclose(row["bits_per_byte"], row["nats_per_token"] / math.log(2), rel_tol=1e-14)
assert math.isclose(row["perplexity"], math.exp(row["nats_per_token"]), rel_tol=1e-14)
PY

timeout 60 "$EVAL" --load run --quiet --json - whole >to.stdout 2>to.stderr || bad "--json -: $(cat to.stderr)"
check "--json - is the same document on standard output" cmp whole.json to.stdout
check "and the table is on standard error" cmp whole.text to.stderr
check "two outputs are refused" test "$("$EVAL" --load run --json - --logprobs - whole 2>&1 | grep -c "cannot both be -")" = 1
check "one file for both is refused" test "$("$EVAL" --load run --json both --logprobs ./both whole 2>&1 | grep -c "both and --logprobs ./both are one file")" = 1
check "and not written" test ! -e both
mkfifo never
"$EVAL" --load run --quiet --task arc --logprobs cut.log never >/dev/null 2>&1 &
for ((i = 0; i < 200; i++)); do
    compgen -G 'cut.log.tmp-*' >begun && break
    sleep 0.05
done
kill -TERM $!
rc=0
wait $! || rc=$?
check "a signal ends a run, not $rc" test $rc = 143
check "it had begun its log" test -s begun
check "and nothing is left of it" test -z "$(compgen -G 'cut.log*')"
check "no file is one for both" "$EVAL" --load run --quiet --json /dev/null --logprobs /dev/null whole >/dev/null
# names that are no UTF-8, and long ones
latin=$(printf 'la\351tin') long=$(printf 'n\303\251%.0s' {1..30})
cp whole "$latin"
cp whole "$long"
cp -r run "$latin.run"
run latin --load "$latin.run" "$latin" "$long"
check "a name that is no UTF-8" json latin.json 'd["model"] == "la\ufffdtin.run" and [x["file"] for x in r] == ["la\ufffdtin", "n\u00e9" * 30]'
check "a long name is cut between characters" grep -q "^$(printf 'n\303\251%.0s' {1..18})  *960 " latin.text
# windows that overlap, the last of them not full; each is what it is alone
head -c 700 text >some
run stride --stride 70 some
run two --stride 70 some whole
ranks 2 tp2 --stride 70 some
ranks 2 pp2 --stride 70 --pp 2 some
ranks 4 both --stride 70 --tp 2 --pp 2 some
for other in tp2 pp2 both; do same stride "$other"; done
for w in 0 1 6 8; do tail -c "+$((70 * w + 1))" some | head -c 193 >"window$w"; done
run windows window0 window1 window6 window8
python "windows" <<'PY'
import json, math
def read(name):
    lines = [json.loads(line) for line in open(name)]
    assert all(float.fromhex(x["logprob_hex"]) != 0 and abs(float.fromhex(x["logprob_hex"]) - x["logprob"]) < 1e-8 for x in lines)
    return {(x["file"], x["index"]): x["logprob_hex"] for x in lines}
some, windows, two = read("stride.log"), read("windows.log"), read("two.log")
assert len(some) == 699
nats = -sum(map(float.fromhex, some.values())) / 699
assert math.isclose(json.load(open("stride.json"))["results"][0]["nats_per_token"], nats, rel_tol=1e-13)
for file, w in enumerate((0, 1, 6, 8)):
    for t in range(1 if w == 0 else 70 * (w - 1) + 193, min(70 * w + 193, 700)):
        assert some[0, t] == windows[file, t - 70 * w], (w, t)
assert all(two[key] == value for key, value in some.items()) and len(two) == 699 + 960
rows = json.load(open("two.json"))
everything = rows["all"]
assert everything["tokens"] == 699 + 960 and everything["bytes"] == everything["tokens"]
nats = sum(row["nats_per_token"] * row["tokens"] for row in rows["results"]) / everything["tokens"]
assert math.isclose(everything["nats_per_token"], nats, rel_tol=1e-13)
PY
# other forms of the same model and text
"$B/bin/gyre-tokenize" --quiet --tokenizer bytes --out some.gyt some || bad "gyre-tokenize"
run tokens --stride 70 some.gyt
check "a token file has other log-probabilities than its text" cmp stride.log tokens.log
run limit --stride 70 --limit 700 text
check "--limit" cmp stride.log limit.log
run file --load one.safetensors --heads 4 --stride 70 some
check "a file of weights has other log-probabilities than the checkpoint" cmp stride.log file.log
run bf16 --precision bf16 some
ranks 2 bf16tp2 --precision bf16 --tp 2 some
same bf16 bf16tp2
check "--precision bf16 changes nothing" test "$(cmp -s bf16.log stride.log || echo no)" = no

# special tokens, and an end of a text, are no bytes of text
python3 - <<'PY'
import json
keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
letters = [chr(b) for b in keep] + [chr(256 + i) for i in range(256 - len(keep))]
added = [{"id": 256 + i, "content": c, "special": c != "<kept>"} for i, c in enumerate(["<s>", "</s>", "<pad>", "<kept>"])]
json.dump({"added_tokens": added, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
           "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(letters)}, "merges": []}}, open("added.json", "w"))
PY
printf 'ab<s>cd</s><kept>ef<pad>' >special
"$B/bin/gyre-tokenize" --quiet --tokenizer added.json --specials --out special.gyt special >special.log || bad "gyre-tokenize --specials"
"$B/bin/gyre-train" --data text --vocab 260 --layers 1 --hidden 16 --heads 2 --seq 8 --batch 1 --steps 0 --save special.safetensors \
    --report none --sample-tokens 0 >train.log 2>&1 || bad "gyre-train: $(tail -n 3 train.log)"
run special --load special.safetensors --heads 2 --tokenizer added.json special.gyt
python "bytes of text: bcd<kept>ef" <<'PY'
import json
row = json.load(open("special.json"))["results"][0]
assert (row["tokens"], row["bytes"]) == (9, 11), row
PY

# nor is the space that a tokenizer puts in front of each text of a folder
python3 - <<'PY'
import json
vocab = {c: i for i, c in enumerate(["<s>", "<unk>", "\u2581", *"abcdefgh"])}
space = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
back = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
begin = {"SpecialToken": {"id": "<s>", "type_id": 0}}
text = {"Sequence": {"id": "A", "type_id": 0}}
tokenizer = {"added_tokens": [{"id": 0, "content": "<s>", "special": True}], "model": {"type": "BPE", "unk_token": "<unk>", "vocab": vocab, "merges": []},
             "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, space]},
             "decoder": {"type": "Sequence", "decoders": [back, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}}
json.dump(tokenizer, open("space.json", "w"))
tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": [begin, text], "pair": [begin, text, begin, text],
                               "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}
json.dump(tokenizer, open("begin.json", "w"))
PY
mkdir texts
printf 'ab cd' >texts/1
printf ' e fgh' >texts/2
for case in begin:texts/1:5 space:texts/1:5 begin:texts:11 space:texts:11; do
    IFS=: read -r tokenizer texts bytes <<<"$case"
    run spaces --load special.safetensors --heads 2 --tokenizer "$tokenizer.json" "$texts"
    json spaces.json "r[0]['bytes'] == $bytes" || bad "$case: $(cat spaces.json)"
done

# a short text in a long window
seq 9999 >much
"$B/bin/gyre-train" --data much --layers 1 --hidden 8 --heads 1 --seq 8192 --batch 1 --steps 0 --valid-fraction 0 \
    --save long.safetensors --report none --sample-tokens 0 >train.log 2>&1 || bad "gyre-train: $(tail -n 3 train.log)"
run long --load long.safetensors --heads 1 whole some
check "a warning, once" [ "$(grep -c 'whole has 961 tokens, but all 8192 positions of a window are computed: --seq' long.err)" = 1 ]
run short --load long.safetensors --heads 1 --seq 961 whole
check "no warning" test ! -s short.err

# ranks that find other checkpoints, as while a run goes on, and other models
cp -r run newest0
for steps in 3 6; do
    "$B/bin/gyre-train" --data text --layers 2 --hidden 64 --heads 4 --seq 192 --batch 4 --steps $steps --lr 0.02 --checkpoint "other$steps" \
        --report none --sample-tokens 0 >train.log 2>&1 || bad "gyre-train: $(tail -n 3 train.log)"
done
"$B/bin/gyre-train" --data text --layers 1 --hidden 64 --heads 4 --seq 192 --batch 4 --steps 6 --checkpoint shape --report none \
    --sample-tokens 0 >train.log 2>&1 || bad "gyre-train: $(tail -n 3 train.log)"
# shellcheck disable=SC2016 # each rank's own
differ() { # TEXT: is what rank 1 meets that has newest1
    local code=0
    timeout 60 "$UCX_RUN" -n 2 sh -c 'exec "$0" --load "newest$GYRE_RANK" whole' "$EVAL" >differ.out 2>differ.err || code=$?
    check "other checkpoints: exit status $code: $(cat differ.out)" test $code = 2
    check "not refused with $1: $(cat differ.err)" grep -qF -- "$1" differ.err
}
ln -s other3 newest1
differ "cannot open newest1/step-000000000006/index.json" # rank 0 chooses
ln -sfn other6 newest1
differ "--load newest1: this rank has found another checkpoint there than rank 0"
ln -sfn shape newest1
differ "--load newest1: this rank has found another model there than rank 0"

# ---- questions ----
python3 "$QUESTIONS" write || bad "the questions"
for task in hellaswag arc mmlu; do
    files=("$task"*.*)
    run "$task" --task "$task" --long cut "${files[@]}"
    ranks 2 "$task-tp2" --task "$task" --long cut --batch 3 --prefill 5 "${files[@]}"
    ranks 2 "$task-pp2" --task "$task" --long cut --batch 16 --pp 2 "${files[@]}"
    run "$task-one" --task "$task" --long cut --batch 1 "${files[@]}"
    for other in tp2 pp2 one; do same "$task" "$task-$other"; done
    # every choice as a text, by the trainer's forward
    python3 "$QUESTIONS" texts "$task" "${files[@]}" || bad "$task: the texts of choices"
    timeout 60 "$EVAL" --load run --quiet --logprobs "$task.texts.log" "$task.texts"/* >/dev/null || bad "$task: the perplexity of its texts"
    check "$task" python3 "$QUESTIONS" compare "$task" "${files[@]}"
done

# a byte-order mark is no part of the first question
printf '"a",b,c,d,e,A\n' >plain_test.csv
printf '%s\n' '{"ind":12345678901234567890,"activity_label":"a","ctx_a":"b","ctx_b":"c","endings":["d","e"],"label":0}' >plain.jsonl
mkdir marked
for task in mmlu:plain_test.csv hellaswag:plain.jsonl; do
    file=${task#*:} task=${task%:*}
    printf '\xef\xbb\xbf' | cat - "$file" >"marked/$file"
    run "plain-$task" --task "$task" "$file"
    run "marked-$task" --task "$task" "marked/$file"
    check "$task with a byte-order mark" cmp "plain-$task.log" "marked-$task.log"
done
printf '\xef\xbb\xa0,b,c,d,e,A\n' >begun_test.csv # another character that begins like one
run begun --task mmlu begun_test.csv
check "what begins like one stays" [ "$(wc -l <begun.log)" = 4 ]

# refused TEXT OPTION...: exit status 2 and an error with that text
refused() {
    local text=$1 code=0
    shift
    timeout 20 "$EVAL" "$@" </dev/null >out 2>err || code=$?
    checks=$((checks + 1))
    if [ $code != 2 ] || ! grep -qF -- "$text" err; then
        bad "not refused with '$text' but with $code: $*: $(cat err)"
    fi
}
# line TASK TEXT LINE: the second line of a file of that task, after a good one
declare -A good=(
    [hellaswag]='{"activity_label":"a","ctx_a":"b","ctx_b":"c","endings":["d","e"],"label":0}'
    [arc]='{"question":{"stem":"a","choices":[{"text":"b","label":"A"},{"text":"c","label":"B"}]},"answerKey":"B"}'
    [mmlu]='a,b,c,d,e,A'
)
line() {
    local task=$1 name=bad.jsonl
    [ "$task" = mmlu ] && name=bad_test.csv
    printf '%s\n%s\n' "${good[$task]}" "$3" >"$name"
    refused "$name:2: $2" --load run --task "$task" "$name"
}
line hellaswag 'the line is not a JSON object' '{"activity_label":'
line hellaswag 'the line is not a JSON object: it is another value' '[]'
line hellaswag 'key "ctx_b" wants a string' '{"activity_label":"a","ctx_a":"b","endings":["d","e"],"label":0}'
line hellaswag 'key "label" wants the number of an ending' '{"activity_label":"a","ctx_a":"b","ctx_b":"c","endings":["d","e"],"label":""}'
line hellaswag 'key "label" wants the number of an ending' '{"activity_label":"a","ctx_a":"b","ctx_b":"c","endings":["d","e"],"label":2}'
line hellaswag 'key "endings" wants a list of two strings' '{"activity_label":"a","ctx_a":"b","ctx_b":"c","endings":"d","label":0}'
line hellaswag 'key "endings" wants strings alone' '{"activity_label":"a","ctx_a":"b","ctx_b":"c","endings":["d",3],"label":0}'
line hellaswag 'choice 2 is empty' '{"activity_label":"a","ctx_a":"b","ctx_b":"c","endings":["d","[e]"],"label":0}'
line hellaswag 'the line is not a JSON object: unable to decode byte' "$(printf '{"activity_label":"\377"}')"
line arc 'key "answerKey" wants the label of a choice' "${good[arc]/\"B\"\}]/\"C\"\}]}"
line arc 'key "question.stem" wants a string' "${good[arc]/stem/stern}"
line arc 'key "question.choices.text" wants a string' "${good[arc]/\"b\"/7}"
line arc 'key "choices" wants as many strings' '{"question":"a","choices":{"text":["b","c"],"label":["A"]},"answerKey":"A"}'
line mmlu 'the record has 5 fields' 'a,b,c,d,A'
line mmlu "field 6, the answer, is 'E'" 'a,b,c,d,e,E'
line mmlu 'the record begins a field in quotes that do not end' 'a,b,c,d,"e,A'
line mmlu 'the record is not UTF-8: byte 0xff' "$(printf 'a,b,\377,d,e,A')"
printf '{"activity_label":"a","ctx_a":"%0190d","ctx_b":"c","endings":["d","e"],"label":0}\n' 0 >long.jsonl
printf '{"activity_label":"a","ctx_a":"b","ctx_b":"c","endings":["%0193d","e"],"label":0}\n' 0 >longer.jsonl
printf '\377\375 a' >bytes
printf '#version: 0.2\nT h\n' >merges.txt
printf 'a' >one
: >nothing
refused "long.jsonl:1: context and choice 1 have 195 and 2 tokens, but the model has 192 positions: --long cut" --load run --task hellaswag long.jsonl
refused "longer.jsonl:1: choice 1 has 194 tokens alone" --load run --task hellaswag --long cut longer.jsonl
printf '{}' | gzip >packed.gz
refused "packed.gz is compressed by gzip: unpack it first" --load run --task arc packed.gz
refused "packed.gz is compressed by gzip: unpack it first" --load run packed.gz
refused "nothing holds no question" --load run --task arc nothing
refused "cannot open none: No such file or directory; name a text file" --load run none
refused "cannot open none" --load run --task arc none
refused "one has 1 token: 2 or more are needed" --load run one
refused "nothing" --load run nothing
refused "--json ./some would replace some, which is read" --load run --json ./some whole some
refused "--logprobs ./one.safetensors would replace one.safetensors, which is read" --load one.safetensors --heads 4 --logprobs ./one.safetensors some
"$B/bin/gyre-train" --data text --load one.safetensors --batch 4 --steps 0 --save folder/ --report none --sample-tokens 0 >train.log 2>&1 ||
    bad "gyre-train: $(tail -n 3 train.log)"
# files of a checkpoint, also by a folder of checkpoints, through a link, or of one that is not loaded
step=run/step-000000000006
ln -s $step/index.json index-link.json
for load in run $step "one.safetensors --heads 4"; do
    # shellcheck disable=SC2086
    refused "would replace a file of the checkpoint $PWD/$step" --load $load --json index-link.json some
done
refused "--logprobs $step/shard-00000.safetensors would replace a file" --load run --logprobs $step/shard-00000.safetensors some
check "an output of one's own there is no file of it" "$EVAL" --load run --quiet --json $step/own-index.json some
check "also the second time" "$EVAL" --load $step --quiet --json $step/own-index.json some
refused "--json folder/config.json would replace a file of folder, which is read" --load folder --tokenizer bytes --json folder/config.json some
refused "--logprobs folder/model.safetensors would replace a file of folder/, which is read" --load folder/ --tokenizer bytes \
    --logprobs folder/model.safetensors some
refused "--logprobs ./merges.txt would replace gpt2:merges.txt, which is read" --load one.safetensors --heads 4 \
    --tokenizer gpt2:merges.txt --logprobs ./merges.txt some
refused "bytes is not UTF-8: byte 0xff at its offset 0" --load one.safetensors --heads 4 --tokenizer gpt2:merges.txt bytes
refused "some.gyt was written with tokenizer 'bytes'" --load one.safetensors --heads 4 --tokenizer gpt2:merges.txt some.gyt
refused "--stride 193: a window has 192 positions" --load run --stride 193 some
# weights that are no numbers: the log stays JSON
cp one.safetensors nan.safetensors
printf '\0\0\xc0\x7f' | dd of=nan.safetensors bs=1 seek=$(($(wc -c <nan.safetensors) - 4)) conv=notrunc 2>/dev/null
timeout 60 "$EVAL" --load nan.safetensors --quiet --logprobs nan.log some >nan.text 2>&1 || bad "NaN: $(cat nan.text)"
check "a warning" grep -q 'some: its log-probabilities are no finite numbers: activations overflow, or weights are no numbers' nan.text
timeout 60 "$B/bin/gyre-generate" --load nan.safetensors --quiet --prompt a --tokens 2 --logprobs nan.said >nan.text 2>&1 || bad "NaN: $(cat nan.text)"
python "JSON without NaN" <<'PY'
import json
for name in ("nan.log", "nan.said"):
    assert {json.loads(line)["logprob"] for line in open(name)} == {None}, name
PY
refused "--load is missing" some
refused "there is no FILE" --load run
refused "--stride is an option of --task perplexity" --load run --task arc --stride 3 nothing
refused "--batch is an option of questions" --load run --batch 3 some
refused "is not the number of ranks, 1" --load run --tp 2 some
ranks_refused=$(timeout 60 "$UCX_RUN" -n 2 "$EVAL" --load run --task arc nothing 2>&1 | grep -c "holds no question")
check "two ranks report a file without questions once, not $ranks_refused times" test "$ranks_refused" = 1
timeout 60 "$EVAL" --load run --json none/such.json some >out 2>err
check "results that cannot be written: exit status" test $? = 1
check "the text" grep -qF -- "--json: cannot write none/such.json: No such file" err
check "before any work" test ! -s out
check "a refused run leaves no results" test ! -e nothing.json

# questions take memory for the positions of the longest of all files, not for all of the model's (8 times 122 MiB)
cat >config.json <<'END'
{"model_type": "gyre", "vocab": 256, "ffn": 64, "seq": 64, "layers": 1, "hidden": 32, "heads": 2, "kv_heads": 1, "pos": "rope", "rotary_dim": 2,
 "sinks": true}
END
"$B/bin/gyre-train" --data text --model config.json --batch 4 --steps 0 --eval-sequences 1 --report none --sample-tokens 0 \
    --save far/ >train.log 2>&1 || bad "gyre-train: $(tail -n 3 train.log)"
sed -i 's/"seq": 64/"seq": 1000000/' far/config.json
echo "${good[arc]}" >short
echo "${good[arc]/\"a\"/\"$(printf '%0200d' 0)\"}" >long
few=$(bash -c 'ulimit -v 600000 && exec "$@"' - timeout 60 "$EVAL" --load far --tokenizer bytes --task arc --threads 1 --order fast --quiet \
    short long 2>&1)
check "memory of few positions: $few" test "$(grep -c "^\(short\|long\|all\) " <<<"$few")" = 3
finish
