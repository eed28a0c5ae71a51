#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# gyre-generate: the log-probabilities of its tokens are those of gyre-train's forward over the same tokens, to the bit, on any
# ranks, with prompts in pieces and with other prompts; and what it refuses.
#   `make check-generate` (TEST_LONG=1): also 1,000 tokens after each of 7 prompts, TP 1, 2, 4 and PP 2, batches of 1 to 7.
. "$(dirname "$0")/../support/lib.sh"
B=$(cd "$B" && pwd)
UCX_RUN=$B/bin/ucx-run
GENERATE=$B/bin/gyre-generate
cd "$W" || exit 1
for i in $(seq 200); do echo "The quick brown fox number $i jumps over the lazy dog."; done >text
"$B/bin/gyre-train" --data text --layers 2 --hidden 64 --heads 4 --seq 64 --batch 4 --steps 12 --lr 0.01 --checkpoint run \
    --checkpoint-every 6 --save one.safetensors --report none --sample-tokens 0 >train.log 2>&1 || bad "gyre-train: $(tail -n 3 train.log)"

# generate NAME OPTION...: text to NAME.text, log-probabilities to NAME.json
generate() {
    local name=$1
    shift
    timeout 60 "$GENERATE" --quiet --ignore-eot --logprobs "$name.json" "$@" >"$name.text" 2>"$name.err" || bad "$name: $(cat "$name.err")"
}
ranks() { # N NAME OPTION...: the same on N ranks
    local n=$1 name=$2
    shift 2
    timeout 60 "$UCX_RUN" -n "$n" "$GENERATE" --quiet --ignore-eot --logprobs "$name.json" "$@" >"$name.text" 2>"$name.err" ||
        bad "$name: $(cat "$name.err")"
}
# same A B: the same tokens with the same bits
same() { check "$1 and $2 differ" cmp "$1.json" "$2.json"; }

# the trainer's loss of the generated text as validation data is the mean of what the generator says
generate one --load run --prompt T --tokens 64
python3 - <<'PY' || bad "the tokens of one.json"
import json
lines = [json.loads(line) for line in open("one.json", encoding="utf-8")]
values = [float.fromhex(line["logprob_hex"]) for line in lines]
assert len(lines) == 64 and all(v == line["logprob"] or abs(v - line["logprob"]) < 1e-8 for v, line in zip(values, lines))
open("said", "wb").write(b"T" + bytes(line["token"] for line in lines))
total = 0.0
for value in values:
    total -= value
open("loss", "w").write("%.17g" % (total / 64))
PY
"$B/bin/gyre-train" --data text --valid-data said --load one.safetensors --batch 4 --steps 0 --log loss.jsonl --report none \
    --sample-tokens 0 >train.log 2>&1 || bad "gyre-train: $(tail -n 3 train.log)"
check "the trainer's loss is not the mean of the log-probabilities" grep -q "\"val_loss\":$(cat loss)[,}]" loss.jsonl
check "the text is not that of the tokens" test "T$(cat one.text)" = "$(tr -d '\0' <said)"

# one prompt in every form, on one to four ranks
long=(--prompt "The quick brown fox number" --tokens 32)
generate plain --load run "${long[@]}"
generate step --load run/step-000000000012 "${long[@]}"
generate file --load one.safetensors "${long[@]}"
generate pieces --load run --prefill 3 "${long[@]}"
ranks 2 tp2 --load run "${long[@]}"
ranks 2 pp2 --load run --pp 2 --prefill 5 "${long[@]}"
ranks 4 both --load run --tp 2 --pp 2 "${long[@]}"
for other in step file pieces tp2 pp2 both; do same plain "$other"; done
generate older --load run/step-000000000006 "${long[@]}"
check "the older checkpoint says the same" test "$(cmp -s plain.json older.json || echo no)" = no

# a run that saves meanwhile: what rank 0 finds to be the newest is what all ranks read
for r in 0 1; do mkdir view.$r && cp -r run view.$r; done
rm -r view.0/run/step-000000000012
timeout 60 "$UCX_RUN" -n 2 sh -c 'cd view.$GYRE_RANK && exec "$@"' sh "$GENERATE" --quiet --ignore-eot --logprobs ../newest.json \
    --load run --pp 2 "${long[@]}" >newest.text 2>newest.err || bad "newest: $(cat newest.err)"
same older newest

# many prompts: one at a time, together, on ranks, from standard input
printf 'The\nThe quick brown\nfox number 7\njumps\nover the lazy' >prompts
many=(--load run --lines --tokens 20 --top-k 30 --top-p 0.9 --seed 3)
generate alone --batch 1 --prompt-file prompts "${many[@]}"
generate together --batch 4 --prefill 2 "${many[@]}" <prompts
ranks 2 shared --batch 3 --prompt-file prompts "${many[@]}"
same alone together
same alone shared
{ cat prompts && printf '\n\n'; } | sed 's/$/\r/' >windows # lines of Windows, the last one empty
generate windows --batch 4 --prefill 2 --prompt-file windows "${many[@]}"
same alone windows
check "five answers" test "$(wc -l <alone.text)" = 5
check "answers are lines of JSON" python3 -c 'import json; [json.loads(l)["text"] for l in open("together.text")]'
generate other --batch 4 --prompt-file prompts "${many[@]}" --seed 4
check "another seed gives the same tokens" test "$(cmp -s alone.json other.json || echo no)" = no

# latent attention, shared experts, a layer without experts; a folder whose last layer predicts further tokens
cat >config.json <<'END'
{"model_type": "deepseek_v3", "vocab_size": 256, "max_position_embeddings": 64, "num_hidden_layers": 4, "hidden_size": 32,
 "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 12, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4,
 "v_head_dim": 16, "intermediate_size": 48, "moe_intermediate_size": 16, "n_shared_experts": 1, "n_routed_experts": 8,
 "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1}
END
learn=(--data text --model config.json --seq 64 --batch 2 --steps 2 --lr 0.01 --report none --sample-tokens 0)
"$B/bin/gyre-train" "${learn[@]}" --save latent/ >train.log 2>&1 || bad "gyre-train: $(tail -n 3 train.log)"
"$UCX_RUN" -n 4 "$B/bin/gyre-train" "${learn[@]}" --tp 2 --pp 2 --sequence-parallel --save latent4/ >train.log 2>&1 ||
    bad "gyre-train: $(tail -n 3 train.log)"
check "weights of four ranks" cmp latent/model.safetensors latent4/model.safetensors
generate latent1 --load latent "${long[@]}"
ranks 4 latent4 --load latent --tp 2 --pp 2 --prefill 5 "${long[@]}"
same latent1 latent4
check "a layer is said to be left out" test "$(grep -c "left out" latent1.err)" = 0
sed -i 's/"num_hidden_layers": 4/"num_hidden_layers": 3/' latent/config.json
generate less --load latent "${long[@]}"
check "the layer that is left out" grep -q "tensors of model.layers.3.*are left out" less.err
check "nothing else" test "$(grep -c "left out" less.err)" = 1
python3 - latent/model.safetensors <<'END'
import json, sys
with open(sys.argv[1], "rb") as file:
    data = file.read()
size = int.from_bytes(data[:8], "little")
header, rest = json.loads(data[8:8 + size]), data[8 + size:]
for name in ("model.vision.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"): # the latter is no parameter
    header[name] = {"dtype": "F32", "shape": [1], "data_offsets": [len(rest), len(rest) + 4]}
    rest += bytes(4)
text = json.dumps(header).encode()
with open(sys.argv[1], "wb") as file:
    file.write(len(text).to_bytes(8, "little") + text + rest)
END
generate more --load latent "${long[@]}"
check "a tensor that the model has no place for" \
    grep -q "1 tensor is left out: the model of its config.json has no parameter model.vision.weight$" more.err
same less more

# logits that are no numbers are not drawn from in silence
python3 - latent/model.safetensors <<'END'
import json, struct, sys
with open(sys.argv[1], "r+b") as file:
    size = int.from_bytes(file.read(8), "little")
    at = json.loads(file.read(size))["model.norm.weight"]["data_offsets"][0]
    file.seek(8 + size + at)
    file.write(struct.pack("<f", float("nan")))
END
for type in fp32 fp16; do
    generate "nan-$type" --load latent --precision $type --lines --prompt-file prompts --tokens 3
    check "one warning of $type" test "$(grep -c "token 1 after line 1 comes from logits that are no finite numbers" "nan-$type.err")" = 1
    check "the log of $type" grep -q '"logprob":null' "nan-$type.json"
done
check "what to do" grep -q "take --precision bf16 or fp32" nan-fp16.err

check "a small model warns of nothing" test ! -s plain.err
check "text and the last line in one pipe" bash -c "$GENERATE --load run --prompt x --tokens 3 --ignore-eot 2>&1 | cat | grep -aq '^gyre-generate: 3 tokens'"

# greedy
generate greedy --load run --temperature 0 "${long[@]}"
generate top1 --load run --top-k 1 "${long[@]}"
same greedy top1
generate echoed --load run --temperature 0 --echo "${long[@]}"
check "--echo" test "$(cat echoed.text)" = "The quick brown fox number$(cat greedy.text)"

# empty lines are no prompts, and have no number
printf '\nThe\n\nThe quick brown\nfox number 7\njumps\nover the lazy\n\n\n' >spaced
generate spaced --batch 4 --prompt-file spaced "${many[@]}"
same together spaced
check "the same answers" cmp together.text spaced.text

# line breaks of Windows, and a byte-order mark, are no part of prompts
printf '\357\273\277The\r\n\r\nThe quick brown\r\nfox number 7\r\njumps\r\nover the lazy\r\n' >windows
generate windows --batch 4 --prompt-file windows "${many[@]}"
same together windows
check "the same answers" cmp together.text windows.text
printf 'The quick brown fox number\r\n' >windows
generate windows --load run --temperature 0 --prompt-file windows "${long[@]:2}"
check "nor of a file that is a prompt" cmp greedy.text windows.text

# JSON has the model's bytes and the prompt's own: only what is not UTF-8 is replaced
printf 'a\r\033\f\177 b' >odd
generate odd --load run --lines --echo --temperature 100 --tokens 50 --prompt-file odd
python3 - <<'PY' || bad "the text in JSON"
import json
line, log = json.loads(open("odd.text").read()), [json.loads(x) for x in open("odd.json")]
assert line["before"] == "a\r\x1b\f\x7f b", line
assert any(x["token"] < 32 for x in log)
assert all(x["text"] == (chr(x["token"]) if x["token"] < 128 else "\ufffd") for x in log), log
assert line["text"] == bytes(x["token"] for x in log).decode(errors="replace"), line
PY

piped=$(printf 'The quick\n' | "$GENERATE" --load run --tokens 5 --quiet --prompt-file -)
check "--prompt-file -" test "$piped" = "$("$GENERATE" --load run --tokens 5 --quiet --prompt "The quick")"

# refused TEXT OPTION...: exit status 2 and an error with that text
refused() {
    local text=$1 code=0
    shift
    timeout 20 "$GENERATE" "$@" </dev/null >out 2>err || code=$?
    checks=$((checks + 1))
    if [ $code != 2 ] || ! grep -qF -- "$text" err; then
        bad "not refused with '$text' but with $code: $*: $(cat err)"
    fi
}
"$B/bin/gyre-train" --data text --load one.safetensors --batch 4 --steps 0 --save folder/ --report none --sample-tokens 0 \
    >train.log 2>&1 || bad "gyre-train: $(tail -n 3 train.log)"
generate folder --load folder "${long[@]}"
same plain folder
printf '\377\376 a' >bytes
printf '#version: 0.2\nT h\n' >merges.txt
: >nothing
mkdir empty
refused "--load is missing" --prompt a
refused "--heads 8: the model in one.safetensors has 4" --load one.safetensors --heads 8 --prompt a
refused "--heads 8: the model in folder has 4" --load folder --heads 8 --prompt a
refused "--load nowhere: it is not there" --load nowhere --prompt a
refused "has neither config.json nor checkpoints" --load empty --prompt a
GYRE_LOG=info refused "prompt 1 has no tokens" --load run --prompt-file nothing
check "said before the decoder is made" test "$(grep -c "recomputes" err)" = 0
refused "prompt 1 has no tokens" --load run
refused "--prompt-file none: No such file" --load run --prompt-file none
refused "prompt 1 is not UTF-8: byte 0xff at its offset 0" --load one.safetensors --tokenizer gpt2:merges.txt --prompt-file bytes
refused "prompt 1 has 1 tokens, and 65 are to follow, but the model has 64 positions" --load run --prompt a --tokens 65
refused "give fewer --tokens" --load run --prompt a --tokens 99999999999999 # and not: no memory for them
printf 'a\n\n%070d\n' 0 >lines
refused "line 3 has 70 tokens, and 64 are to follow" --load run --lines --prompt-file lines
printf 'a\n\n\377\n' >lines
refused "line 3 is not UTF-8" --load one.safetensors --tokenizer gpt2:merges.txt --lines --prompt-file lines
printf '\n\n' >lines
refused "there is no prompt: all lines are empty" --load run --lines --prompt-file lines
refused "shorten the prompt" --load run --prompt "$(printf '%070d' 0)"
slow=$(OPENBLAS_CORETYPE=Haswell GYRE_LOG=info "$GENERATE" --load run --prompt a --tokens 65 2>&1 | grep -c recomputes)
check "an error before a warning of slow tokens" test "$slow" = 0
refused "the one in run has 64 positions and 4 leaves" --load run --seq 32 --prompt a
refused "is not the number of ranks, 1" --load run --tp 2 --prompt a
refused "exclude each other" --load run --prompt a --prompt-file prompts
refused "--logprobs" --load run --prompt a --logprobs
refused "--logprobs ./one.safetensors would replace one.safetensors" --load one.safetensors --tokenizer bytes --heads 4 --prompt a --logprobs ./one.safetensors
refused "--logprobs ./prompts would replace prompts" --load run --prompt-file prompts --logprobs ./prompts
refused "--logprobs folder/model.safetensors would replace a file of folder, which is read" --load folder --tokenizer bytes --prompt a \
    --logprobs folder/model.safetensors
refused "--logprobs ./merges.txt would replace gpt2:merges.txt, which is read" --load folder --tokenizer gpt2:merges.txt --prompt a \
    --logprobs ./merges.txt
echo old >old.json
refused "shorten the prompt" --load run --logprobs old.json --prompt "$(printf '%070d' 0)"
check "a run that is refused leaves the older log" grep -qx old old.json
sed -i 's/"n_layer": *2/"n_layer": 3/' folder/config.json
refused "h.2." --load folder --prompt a
ranks_refused=$(timeout 60 "$UCX_RUN" -n 2 "$GENERATE" --load nowhere --prompt a 2>&1 | grep -c "it is not there")
check "two ranks report a missing folder once, not $ranks_refused times" test "$ranks_refused" = 1

# sequences take memory for the positions of the longest prompt and its tokens, not for all of the model's (122 MiB each); a start that
# would take minutes is said before
cat >config.json <<'END'
{"model_type": "gyre", "vocab": 256, "ffn": 48000, "seq": 64, "layers": 1, "hidden": 32, "heads": 2, "kv_heads": 1, "pos": "rope", "rotary_dim": 2,
 "sinks": true}
END
"$B/bin/gyre-train" "${learn[@]}" --steps 0 --eval-sequences 1 --save far/ >train.log 2>&1 || bad "gyre-train: $(tail -n 3 train.log)"
sed -i 's/"seq": 64/"seq": 1000000/' far/config.json
far=(--load far --tokenizer bytes --prefill 1 --threads 1)
seq 8 >lines
few=$(bash -c 'ulimit -v 600000 && exec "$@"' - "$GENERATE" "${far[@]}" --lines --prompt-file lines --tokens 4 --order fast 2>&1)
check "memory of few positions: $few" grep -q "^gyre-generate: 32 tokens after 8 prompts" <<<"$few"
check "the start is short: $few" test "$(grep -c "takes minutes" <<<"$few")" = 0
few=$(bash -c 'ulimit -v 600000 && exec "$@"' - "$GENERATE" "${far[@]}" --lines --prompt-file lines --tokens 999999 2>&1)
check "what to do without memory, not: $few" grep -q "8 sequences of 1000000 positions.*: take fewer" <<<"$few"
check "what to do about a long start, not: $few" grep -q "takes minutes or more: .*--seq" <<<"$few"
# layers do not make the start longer: orders are those of one of them
sed -i 's/"ffn": 48000/"ffn": 2048/; s/"layers": 1/"layers": 64/' config.json
"$B/bin/gyre-train" "${learn[@]}" --steps 0 --eval-sequences 1 --save deep/ >train.log 2>&1 || bad "gyre-train: $(tail -n 3 train.log)"
sed -i 's/"seq": 64/"seq": 400000/' deep/config.json
few=$(bash -c 'ulimit -v 600000 && exec "$@"' - "$GENERATE" --load deep --tokenizer bytes --prompt T --threads 1 --tokens 399999 2>&1)
check "no memory: $few" grep -q "1 sequences of 400000 positions.*: take fewer" <<<"$few"
check "layers make no long start: $few" test "$(grep -c "takes minutes" <<<"$few")" = 0
if [ -n "${TEST_LONG:-}" ]; then
    for n in 1 2 4; do
        check "1,000 tokens on $n ranks" timeout 2000 "$UCX_RUN" -n "$n" "$B/tests/model/mp_generate_bits" 1000
    done
fi
finish
