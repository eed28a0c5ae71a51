#!/bin/bash
# tests/tools/train/test_tune.sh: fine-tuning on conversations: JSON lines to a token file with a mask, the loss on answers falls, the
# same bits in every layout, and bad input is refused by name. What is learned of a conversation: tests/model/text/test_chat.c.
# deadline: 90
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=40
TRAIN=$B/bin/gyre-train
T=$B/bin/gyre-tokenize

# A tokenizer of bytes and of the tokens of a chat, and conversations with one answer to each question.
python3 - "$W" <<'PY'
import json, sys
w = sys.argv[1]
plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
letters = [chr(b) for b in plain] + [chr(256 + i) for i in range(256 - len(plain))]
special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
vocab = {word: i for i, word in enumerate(letters + special)}
json.dump({"version": "1.0", "added_tokens": [{"id": vocab[s], "content": s, "special": True} for s in special], "normalizer": None,
           "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}, "decoder": {"type": "ByteLevel"},
           "model": {"type": "BPE", "vocab": vocab, "merges": []}}, open(w + "/tokenizer.json", "w"))
words = "cat dog sun tea red".split()
with open(w + "/chats.jsonl", "w") as out:
    for i in range(400):
        a, b = words[i % 5], words[i * 7 // 5 % 5]
        out.write(json.dumps({"messages": [{"role": "user", "content": f"{i % 97} {a}?"}, {"role": "assistant", "content": a[::-1]},
                                           {"role": "user", "content": b}, {"role": "assistant", "content": b[::-1]}]}) + "\n")
PY
chat() { # FILE ARGUMENTS...
    run "$T" --tokenizer "$W/tokenizer.json" --jsonl --quiet --out "$W/$1.gyt" "${@:2}"
}
curve() {
    python3 -c 'import json, sys
for line in map(json.loads, open(sys.argv[1])):
    if "loss_hex" in line or "val_hex" in line:
        print({k: line[k] for k in line if k == "step" or k.endswith("_hex")})' "$1"
}
loss() { # LOG STEP
    python3 -c 'import json, sys
print(next(line["loss"] for line in map(json.loads, open(sys.argv[1])) if line.get("step") == int(sys.argv[2])))' "$1" "$2"
}

# --- conversations to tokens ---
chat one --template chatml --threads 1 "$W/chats.jsonl"
want "one thread" 0
check "says what is learned" grep -qx "3200 of the tokens are learned: answers and completions, each with its end" "$W/out"
chat chats --template chatml --threads 3 "$W/chats.jsonl"
check "the same on three" cmp -s "$W/one.gyt" "$W/chats.gyt"
run "$T" --info "$W/chats.gyt"
check "info counts them" grep -qx "learned     3200 tokens" "$W/out"
chat all --template chatml --learn all "$W/chats.jsonl"
run "$T" --info "$W/all.gyt"
check "all of it" bash -c '! grep -q learned "$1"' - "$W/out"
printf '%s\n' '{"prompt": "2+2=", "completion": "4"}' '{"text": "a text"}' >"$W/pair.jsonl"
chat pair "$W/pair.jsonl"
check "a completion, its end, and a text" grep -qx "8 of the tokens are learned: .*" "$W/out"
{
    cat "$W/chats.jsonl"
    echo '{"messages": [{"role": "user", "content": "nobody answers"}]}'
    printf '{"prompt": "%200s", "completion": "long"}\n' x
} >"$W/mixed.jsonl"
chat mixed --template chatml --context 150 "$W/mixed.jsonl"
want "what is left out" 0 "1 conversations of more than 150 tokens were left out" "1 conversations without an answer were left out"
check "and counted" grep -q "in 400 documents" "$W/out"

# --- the forms in which data has conversations ---
same() { # NAME OTHER PLAIN: two lines that are the same document
    printf '%s\n' "${2//$'\n'/}" >"$W/other.jsonl"
    printf '%s\n' "${3//$'\n'/}" >"$W/plain.jsonl"
    chat other --template chatml "$W/other.jsonl"
    want "$1" 0
    chat plain --template chatml "$W/plain.jsonl"
    check "$1: the same" cmp -s "$W/other.gyt" "$W/plain.gyt"
}
PLAIN='{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'
same "ShareGPT" '{"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "a", "weight": 0}, {"from": "gpt", "value": "b", "weight": 1}], "tools": ""}' "$PLAIN"
same "conversations with roles" "${PLAIN/messages/conversations}" "$PLAIN"
same "messages as a prompt" '{"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
    "completion": [{"role": "assistant", "content": "d"}]}' '{"messages": [{"role": "user", "content": "a"},
    {"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}'
same "messages as a prompt, in ShareGPT's form" '{"prompt": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"},
    {"from": "human", "value": "c"}], "completion": [{"from": "gpt", "value": "d"}]}' '{"messages": [{"role": "user", "content": "a"},
    {"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}'
same "with preferences next to it" "${PLAIN/%\}/, \"prompt\": \"a\", \"chosen\": [], \"system\": \"s\", \"functions\": []\}}" "$PLAIN"

same "an empty list next to a text" '{"conversations": [], "text": "hello"}' '{"text": "hello"}'
same "another thing of that name next to a text" '{"conversations": "id7", "text": "hello"}' '{"text": "hello"}'
same "the same next to a completion" '{"conversations": 7, "prompt": "a", "completion": "b"}' '{"prompt": "a", "completion": "b"}'

# --- bad input ---
bad_line() { # NAME LINE PATTERN
    { head -n 2 "$W/chats.jsonl" && echo "$2"; } >"$W/bad.jsonl"
    chat bad --template chatml "$W/bad.jsonl"
    want "$1" 2 "bad.jsonl:3: $3"
}
bad_line "an unknown role" '{"messages": [{"role": "wizard", "content": "x"}]}' "message 1: the role 'wizard' is unknown: there are system,"
bad_line "a role without words" '{"messages": [{"role": "tool", "content": "x"}]}' "message 1: --template chatml does not write the role 'tool'"
bad_line "calls of a user" '{"messages": [{"role": "user", "content": "x", "tool_calls": [{}]}]}' 'message 1: "tool_calls" are a list, and the assistant'
bad_line "no calls" '{"messages": [{"role": "assistant", "tool_calls": []}]}' 'message 1: its "content" is not a text'
bad_line "calls" '{"messages": [{"role": "assistant", "tool_calls": [{}]}]}' 'message 1: --template chatml does not write "tool_calls"'
bad_line "tools" '{"messages": [{"role": "user", "content": "x"}], "tools": [{}]}' 'the conversation has "tools", which --template chatml does not write'
bad_line "no list of tools" '{"messages": [{"role": "user", "content": "x"}], "tools": {"a": 1}}' '"tools" is not a list of objects'
bad_line "an older call" '{"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}' \
    "message 1: \"function_call\" and the role 'function' are not read: write \"tool_calls\" and 'tool', as docs/fine-tuning.md says"
bad_line "a picture" '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}' \
    "message 1: a part of its \"content\" has the type 'image_url': only 'text' is read"
bad_line "a weight" '{"messages": [{"role": "assistant", "content": "x", "weight": 0.5}]}' 'message 1: "weight" is 0 or 1'
bad_line "a weight of a user" '{"messages": [{"role": "user", "content": "x", "weight": 1}]}' 'message 1: "weight" is 0 or 1, and 1 is the'
bad_line "no messages" '{"messages": []}' '"messages" is not a list of one message or more'
bad_line "no conversations" '{"conversations": []}' '"conversations" is not read: it is not a list of one message or more'
bad_line "no messages in two lists" '{"prompt": [], "completion": []}' '"prompt" and "completion" must be texts, or both lists of messages'
bad_line "a number as a text" '{"text": 5}' '"text" is 5, not a text: --key names'
bad_line "a long value as a text" "{\"text\": [\"a$(printf 'é%.0s' {1..40})\"]}" '"text" is \["a(é){28}\.\.\., not a text: --key names'
bad_line "no content" '{"messages": [{"role": "user"}]}' 'message 1: its "content" is not a text'
bad_line "no role" '{"messages": ["x"]}' 'message 1: it has no "role"'
bad_line "a role of ShareGPT's" '{"conversations": [{"from": "bard", "value": "x"}]}' "message 1: the role 'bard' is unknown"
bad_line "a system's text" '{"messages": [{"role": "user", "content": "x"}], "system": "s"}' '"system" next to messages is not read: write it as the first'
bad_line "functions" '{"messages": [{"role": "user", "content": "x"}], "functions": [{}]}' '"functions" next to messages is not read: write "tools"'
bad_line "settings" '{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"a": 1}}' '"chat_template_kwargs" next to messages'
bad_line "tools as no list" '{"messages": [{"role": "user", "content": "x"}], "tools": "{}"}' '"tools" is not a list of objects'
bad_line "tools as a text" '{"messages": [{"role": "user", "content": "x"}], "tools": "[{}]"}' 'the conversation has "tools", which --template chatml'
bad_line "a choice" '{"prompt": "x", "chosen": "a", "rejected": "b"}' '"chosen" is not read: preferences are not learned: write'
bad_line "OpenAI's" '{"input": {}, "preferred_output": []}' '"preferred_output" is not read: preferences'
bad_line "a judgement" '{"prompt": "x", "completion": "a", "label": false}' '"label" next to "completion": preferences are not learned'
bad_line "Alpaca" '{"instruction": "x", "input": "", "output": "b"}' '"instruction" is not read: write a conversation of it, as docs/'
bad_line "a list" '[{"text": "x"}]' "a list, but each line is an object of its own: jq -c '.\[\]' makes lines of a list"
bad_line "the first line of a list" '[' "a list, but each line is an object of its own"
bad_line "a list as a prompt" '{"prompt": [], "completion": "x"}' '"prompt" and "completion" must be texts'
bad_line "nothing that is known" '{"question": "x"}' 'the object has neither "messages", nor'
chat bad --template mistral "$W/chats.jsonl"
want "a tokenizer without the template's tokens" 2 "chats.jsonl:1: --template mistral needs the token <s>, which the tokenizer tokenizer.json lacks"
chat bad "$W/chats.jsonl"
want "no template" 2 "there is no chat template next to the tokenizer .*: name one with --template: chatml, "
# the program of the tokenizer's folder, which asks for the day, and does what is not supported
echo '{{ strftime_now("%d %b") }}{% for m in messages %}{{ "<|im_start|>" + m.role + m.content + "<|im_end|>" }}{% endfor %}' >"$W/chat_template.jinja"
chat bad "$W/chats.jsonl"
want "no day" 2 "chats.jsonl:1: .*/chat_template.jinja: line 1: it asks for the day .strftime_now.: give one with --date YYYY-MM-DD"
chat day --date 2026-11-05 "$W/chats.jsonl"
want "a day" 0
run "$T" --decode "$W/day.gyt" --tokenizer "$W/tokenizer.json" --count 25
check "the day is written" grep -q '^05 Nov<|im_start|>user0 cat?<|im_end|>' "$W/out"
echo '{% include "other" %}' >"$W/chat_template.jinja"
chat bad "$W/chats.jsonl"
want "a statement that is not there" 2 "chat_template.jinja: line 1: the statement is not supported: include: change the program, or name a template"
echo '{{ raise_exception("no") }}' >"$W/chat_template.jinja"
chat bad "$W/chats.jsonl"
want "a conversation that the template refuses" 2 "chat_template.jinja: line 1: the template refuses the conversation: no$"
rm "$W/chat_template.jinja"
for day in 2026-13-01 26-1-1 today; do
    chat bad --date "$day" "$W/chats.jsonl"
    want "--date $day" 2 "--date $day: wants a day, YYYY-MM-DD"
done
run "$T" --tokenizer bytes --date 2026-11-05 --out "$W/bad.gyt" README.md
want "a day for texts" 2 "--date needs --jsonl"
chat bad --template jinja "$W/chats.jsonl"
want "an unknown template" 2 "chatml, qwen2"
echo '{"messages": [{"role": "user", "content": "nobody answers"}]}' >"$W/none.jsonl"
chat bad --template chatml "$W/none.jsonl"
want "nothing to learn" 2 "nothing is left to write: 0 conversations are longer than --context, 1 have no answer to learn"
check "nothing is written" [ ! -e "$W/bad.gyt" ]
run "$T" --tokenizer bytes --template chatml --out "$W/bad.gyt" README.md
want "a template for texts" 2 "--template needs --jsonl"

# --- training ---
SMALL=(--data "$W/chats.gyt" --layers 2 --hidden 32 --heads 4 --seq 48 --batch 8 --lr 0.01 --warmup 4 --eval-sequences 8 --report none
    --sample-tokens 0 --peak-flops 1e9)
run "$TRAIN" "${SMALL[@]}" --steps 60 --log "$W/long"
want "60 steps" 0
check "the loss on answers falls" python3 -c 'import sys; sys.exit(not float(sys.argv[2]) < 0.5 * float(sys.argv[1]))' \
    "$(loss "$W/long" 1)" "$(loss "$W/long" 60)"
SMALL+=(--steps 4 --eval-every 2)
for sampling in random packed padded; do
    run "$TRAIN" "${SMALL[@]}" --sampling $sampling --log "$W/alone"
    want "one process, $sampling" 0
    curve "$W/alone" >"$W/$sampling"
    check "four losses" [ "$(grep -c loss_hex "$W/$sampling")" = 4 ]
    while read -r ranks options <&3; do
        # shellcheck disable=SC2086 # several options
        run "$UCX_RUN" -n "$ranks" "$TRAIN" "${SMALL[@]}" --sampling $sampling $options --log "$W/log"
        want "$sampling $options" 0
        check "$sampling $options: the same bits" cmp -s "$W/$sampling" <(curve "$W/log")
    done 3<<'LAYOUTS'
2 --tp 2 --sequence-parallel --recompute full
2 --pp 2 --micro-batch 2
2 --dp 2
4 --pp 2 --dp 2 --zero 2 --schedule zb-h1
3 --dp 3 --zero 3
LAYOUTS
done

# --- frozen weights ---
FROZEN=("${SMALL[@]}" --freeze '*wte*,*.h.0.*')
run "$TRAIN" "${SMALL[@]}" --steps 0 --save "$W/start"
run "$TRAIN" "${FROZEN[@]}" --log "$W/alone" --save "$W/end"
want "frozen" 0
check "says how many" grep -qE "^0.02 of 0.04 million parameters are frozen" "$W/out"
check "their bits stay, and others' do not" python3 - "$W/start" "$W/end" <<'PY'
import json, struct, sys
def tensors(path):
    data = open(path, "rb").read()
    (n,) = struct.unpack_from("<Q", data)
    head = json.loads(data[8 : 8 + n])
    return {k: data[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]] for k, v in head.items() if k != "__metadata__"}
start, end = map(tensors, sys.argv[1:])
for name in start:
    assert (start[name] == end[name]) == ("wte" in name or ".h.0." in name), name
PY
curve "$W/alone" >"$W/frozen"
for options in "2 --tp 2" "4 --pp 2 --dp 2 --zero 2" "2 --dp 2 --zero 3"; do
    # shellcheck disable=SC2086 # several options
    run "$UCX_RUN" -n ${options%% *} "$TRAIN" "${FROZEN[@]}" ${options#* } --log "$W/log"
    want "frozen, $options" 0
    check "frozen, $options: the same bits" cmp -s "$W/frozen" <(curve "$W/log")
done
run "$TRAIN" "${SMALL[@]}" --freeze '*ln_f*,*q_proj*'
want "a pattern that fits nothing" 2 "--freeze \*q_proj\*: no weight is named so; names are .*transformer.wte.weight"
run "$TRAIN" "${SMALL[@]}" --freeze '*'
want "everything frozen" 2 "--freeze: every weight is frozen"
run "$TRAIN" --load "$W/start" --data "$W/chats.gyt" --heads 4 --steps 1 --report none --sample-tokens 0
check "the rate of loaded weights is said" grep -qx "learning rate 2e-05, the default for weights that are loaded" "$W/out"

# --- documents that are too long, and data and models without documents ---
run "$TRAIN" "${SMALL[@]}" --seq 40 --sampling packed
want "short sequences" 0 "3[0-9]+ of 3[0-9]+ documents are longer than a sequence of 40 tokens: their ends are not trained on"
run "$TRAIN" "${SMALL[@]}" --seq 12 --sampling packed
want "too short sequences" 2 "no document has a token to learn"
run "$TRAIN" "${SMALL[@]}" --data tests/support/english.txt --sampling padded
want "text" 2 "english.txt is of format text, which does not say where documents are"

# a mask that hides all of the tenth for validation; an objective that knows no mask
printf '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "%2000s"}]}' \
    x >"$W/late.jsonl"
chat late --template chatml "$W/late.jsonl"
run "$TRAIN" "${SMALL[@]}" --data "$W/late.gyt"
want "a mask that hides everything" 2 "late.gyt: no token of the data for validation is learned: its mask hides them all"
printf '{"model_type": "glm", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
"vocab_size": 264, "max_position_embeddings": 48, "hidden_act": "geglu"}' >"$W/glm.json"
run "$TRAIN" --model "$W/glm.json" --data "$W/chats.gyt" --steps 1 --report none
want "blanks of conversations" 2 "data with a mask of what is learned: only --objective causal heeds documents and masks"
finish
