#!/bin/bash
# tests/tools/test_gyre_tokenize.sh: gyre-tokenize's promises, and gyre-train on what it writes.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
T=$B/bin/gyre-tokenize
TRAIN=$B/bin/gyre-train
unset "${!GYRE_@}"

# A small vocabulary in GPT-2's letters; the documents of this repository as text.
printf '%s\n' '#version: 0.2' 'Ġ t' 'h e' 'Ġt he' 'i n' 'in g' 'Ġ a' 'r e' 'Ġa n' 'Ġan d' 'Ċ Ċ' 'e r' 'o n' 'i s' >"$W/merges.txt"
cat docs/architecture.md docs/contract.md >"$W/text"
mkdir "$W/docs"
cp docs/contract.md docs/failures.md README.md "$W/docs/"
printf 'a\0b' >"$W/docs/picture"

# --- text to tokens and back ---
run "$T" --tokenizer "gpt2:$W/merges.txt" --out "$W/a.gyt" "$W/text"
want "tokenizes" 0
run "$T" --decode "$W/a.gyt" --tokenizer "$W/merges.txt"
want "decodes" 0
check "the text comes back to the byte" cmp -s "$W/out" "$W/text"
run "$T" --decode "$W/a.gyt" --tokenizer "$W/merges.txt" --from 10 --count 5
"$T" --decode "$W/a.gyt" --tokenizer "$W/merges.txt" --count 15 | tail -c "$(wc -c <"$W/out")" >"$W/tail"
check "a part of it" cmp -s "$W/out" "$W/tail"
check "one document" bash -c "'$T' --tokenizer '$W/merges.txt' --quiet --out '$W/one.gyt' '$W/text' | grep -q ' in 1 document from '"
run "$T" --info "$W/a.gyt"
want "tells" 0
for line in 'format      gyre' 'width       16 bits' 'documents   1' 'vocabulary  270' 'tokenizer   gpt2' 'end of text 269' \
    'checked     checksums, documents, every id'; do
    check "info: $line" grep -qxF "$line" "$W/out"
done
run "$T" --tokenizer bytes --out "$W/bytes.gyt" "$W/text"
want "bytes" 0
run "$T" --decode "$W/bytes.gyt" # their tokenizer is known
check "bytes come back" cmp -s "$W/out" "$W/text"

# --- folders, lines, threads ---
for threads in 1 3; do
    run "$T" --tokenizer "$W/merges.txt" --eot --threads $threads --quiet --out "$W/folder$threads.gyt" "$W/docs" "$W/text"
    want "a folder and a file, $threads threads" 0
done
check "the same on any number of threads" cmp -s "$W/folder1.gyt" "$W/folder3.gyt"
mkfifo "$W/late"
taskset -c "$(taskset -pc $$ | sed 's/.*: //; s/[,-].*//')" "$T" --tokenizer bytes --quiet --out "$W/late.gyt" - <"$W/late" >"$W/out" &
exec 9>"$W/late"
two_tasks() { [ "$(find "/proc/$!/task" -mindepth 1 -maxdepth 1 | wc -l)" = 2 ]; }
one_thread() { two_tasks && sleep 0.2 && two_tasks; } # not the first of more that are being started
check "one processor, one thread besides the first" until_true 10 one_thread
echo late >&9
exec 9>&-
wait $!
check "what is no text was left out" grep -q '1 files in folders do not look like text' "$W/err"
"$T" --decode "$W/folder1.gyt" --tokenizer "$W/merges.txt" >"$W/out"
for file in README.md contract.md failures.md; do
    cat "$W/docs/$file"
    printf '<|endoftext|>'
done >"$W/expected"
(cat "$W/text" && printf '<|endoftext|>') >>"$W/expected"
check "documents in order, each with its end" cmp -s "$W/out" "$W/expected"
/usr/bin/python3 - "$W" <<'PY'
import json, sys
w = sys.argv[1]
with open(w + "/lines.jsonl", "w") as out:
    for i in range(3000):
        out.write(json.dumps({"id": i, "body": f"line {i}\n\u00e4\u4e2d\U0001f600 the end \0 <|endoftext|>"}, ensure_ascii=i % 2 == 0) + "\n")
        if i % 100 == 0:
            out.write("  \n")
PY
for threads in 1 4; do
    run "$T" --tokenizer "$W/merges.txt" --jsonl --key body --threads $threads --quiet --out "$W/lines$threads.gyt" "$W/lines.jsonl"
    want "lines, $threads threads" 0
done
check "lines, too, are the same on any number of threads" cmp -s "$W/lines1.gyt" "$W/lines4.gyt"
check "3000 documents" grep -q ' in 3000 documents ' "$W/out"
"$T" --tokenizer "$W/merges.txt" --jsonl --key body --quiet --out "$W/lines0.gyt" - <"$W/lines.jsonl" >/dev/null
check "from standard input" cmp -s "$W/lines0.gyt" "$W/lines1.gyt"
run "$T" --decode "$W/lines1.gyt" --tokenizer "$W/merges.txt"
check "every line's text" /usr/bin/python3 -c '
import sys
want = "".join(f"line {i}\n\u00e4\u4e2d\U0001f600 the end \0 <|endoftext|>" for i in range(3000)).encode()
sys.exit(open(sys.argv[1], "rb").read() != want)' "$W/out"

printf 'a <x> <y> b' >"$W/marked"
# --- ids of added tokens that tokenizers would number anew ---
for id in 2 5; do
    printf '{"model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"}, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "added_tokens": [{"id": 1, "content": "a"}, {"id": %d, "content": "<x>"}, {"id": %d, "content": "<y>"}]}' $id $((id + 1)) >"$W/numbers.json"
    run "$T" --tokenizer "$W/numbers.json" --quiet --out "$W/numbers.gyt" "$W/marked"
    want "added tokens from $id on" 0
    check "which is said if they are others than those of tokenizers: $id" \
        [ "$(grep -c "numbers.json: the added token '<x>' has id 5, but the library tokenizers gives it 2, which" "$W/err")" = $((id == 5)) ]
done

while read -r name x added want; do
    printf '{"model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1, "<x>": %d}, "unk_token": "[UNK]"},
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "added_tokens": %s}' "$x" "$added" >"$W/numbers.json"
    run "$T" --tokenizer "$W/numbers.json" --quiet --out "$W/numbers.gyt" "$W/marked"
    want "added tokens: $name" 0
    check "added tokens, $name: what is said of their ids" \
        [ "$(sed -n "s/.*the added token '\(<.>\)' has id \([0-9]*\), but .* gives it \([0-9]*\),.*/\1:\2:\3/p" "$W/err")" = "$want" ]
done <<'CASES'
one-is-listed-twice 2 [{"id":3,"content":"<y>"},{"id":3,"content":"<y>"},{"id":4,"content":"<z>"}]
one-of-the-vocabulary-is-beyond-it 9 [{"id":9,"content":"<x>"},{"id":10,"content":"<y>"}] <y>:10:3
the-next-is-not 9 [{"id":9,"content":"<x>"},{"id":3,"content":"<y>"}]
CASES

# --- what goes wrong is named, and nothing is left behind ---
refuse() { # NAME PATTERN ARGUMENTS...
    local name=$1 pattern=$2
    shift 2
    run "$T" "$@"
    want "$name" 2
    check "$name: says '$pattern'" grep -qE -- "$pattern" "$W/err"
}
cp "$W/a.gyt" "$W/keep.gyt"
printf '{"text": "fine"}\n{"text": 3}\n' >"$W/bad.jsonl"
refuse "a line without text" 'bad.jsonl:2: .*--key' --tokenizer bytes --jsonl --out "$W/a.gyt" "$W/bad.jsonl"
refuse "what is there instead" 'bad.jsonl:2: "text" is 3, not a text' --tokenizer bytes --jsonl --out "$W/a.gyt" "$W/bad.jsonl"
printf '{"text": null}\n' >"$W/bad.jsonl"
refuse "null" 'bad.jsonl:1: "text" is null, not a text' --tokenizer bytes --jsonl --key text --out "$W/a.gyt" "$W/bad.jsonl"
for list in '[{"text": "a"}, {"text": "b"}]' '[\n  {"text": "a"},\n  {"text": "b"}\n]'; do
    printf "%b\n" "$list" >"$W/bad.json"
    refuse "a list of objects" 'bad.json:1: .*each line is an object of its own.*jq -c' --tokenizer bytes --jsonl --out "$W/a.gyt" "$W/bad.json"
done
printf '"text"\n' >"$W/bad.json"
refuse "a text alone" 'bad.json:1: the line is not an object' --tokenizer bytes --jsonl --out "$W/a.gyt" "$W/bad.json"
mkdir "$W/links"
ln -s ../bad.json "$W/links/bad.json"
refuse "a folder of links" 'links holds no files: links and names that begin with a dot are left out' --tokenizer bytes --out "$W/a.gyt" "$W/links"
printf '{"text": "fine"}\n{"text": \n' >"$W/bad.jsonl"
refuse "a line that is no JSON" 'bad.jsonl:2: not valid JSON' --tokenizer bytes --jsonl --out "$W/a.gyt" "$W/bad.jsonl"
for content in '' '\n' ' \r\n\t\n' '\xef\xbb\xbf' '\xef\xbb\xbf\n'; do
    printf %b "$content" >"$W/bad.jsonl"
    refuse "no line at all ($content)" 'bad.jsonl: nothing to write: there is no line of JSON' --tokenizer bytes --jsonl \
        --out "$W/none.gyt" "$W/bad.jsonl"
    check "and writes nothing" [ ! -e "$W/none.gyt" ]
done
: >"$W/empty"
printf '{"text":""}\n' >"$W/bad.jsonl"
refuse "a line without text" 'bad.jsonl: nothing to write: there is no text in it' --tokenizer bytes --jsonl --out "$W/none.gyt" "$W/bad.jsonl"
refuse "no text" 'empty: nothing to write: there is no text' --tokenizer bytes --out "$W/none.gyt" "$W/empty"
printf '\xef\xbb\xbf{"text": "one"}\n{"text": "two"}\n' >"$W/marked.jsonl"
printf '{"text": "one"}\n{"text": "two"}\n' >"$W/unmarked.jsonl"
for name in marked unmarked; do
    run "$T" --tokenizer bytes --jsonl --quiet --out "$W/$name.gyt" "$W/$name.jsonl"
    want "a byte-order mark: $name" 0
done
check "is skipped" cmp -s "$W/marked.gyt" "$W/unmarked.gyt"
printf '%s\n' '{"messages": null, "text": "one"}' '{"prompt": "x", "completion": null, "text": "two"}' \
    '{"messages": null, "prompt": null, "completion": "y", "text": "three"}' >"$W/null.jsonl"
run "$T" --tokenizer bytes --jsonl --quiet --out "$W/null.gyt" "$W/null.jsonl"
want "null is as if the key were absent" 0
check "all three are texts" [ "$("$T" --decode "$W/null.gyt" --tokenizer bytes)" = onetwothree ]
printf '%s\n' '{"hash": 12345678901234567890, "text": "one"}' '{"text": "t\ud800wo"}' >"$W/python.jsonl"
printf '{"text": "one"}\n{"text": "t\xef\xbf\xbdwo"}\n' >"$W/plain.jsonl"
for name in python plain; do
    run "$T" --tokenizer bytes --jsonl --quiet --out "$W/$name.gyt" "$W/$name.jsonl"
    want "a hash of 64 bits, half of a surrogate pair: $name" 0
done
check "are read as Python reads them" cmp -s "$W/python.gyt" "$W/plain.gyt"
printf '{"text": "one"}\n\xef\xbb\xbf{"text": "two"}\n' >"$W/bad.jsonl"
refuse "but not in the middle" 'bad.jsonl:2: not valid JSON' --tokenizer bytes --jsonl --out "$W/none.gyt" "$W/bad.jsonl"
printf '{"text": "one"}\n' | gzip >"$W/bad.jsonl.gz"
gzip <"$W/text" >"$W/bad.gz"
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n' >"$W/bad.lfs"
refuse "packed lines" 'bad.jsonl.gz is compressed by gzip: .*zcat' --tokenizer bytes --jsonl --out "$W/none.gyt" "$W/bad.jsonl.gz"
refuse "a packed text" 'bad.gz is compressed by gzip' --tokenizer "$W/merges.txt" --out "$W/none.gyt" "$W/bad.gz"
cp "$W/bad.lfs" "$W/tokenizer.json"
refuse "a tokenizer that Git left" 'tokenizer.json is a pointer of Git LFS' --tokenizer "$W/tokenizer.json" --out "$W/none.gyt" "$W/text"
refuse "what Git left" 'bad.lfs is a pointer of Git LFS' --tokenizer "$W/merges.txt" --out "$W/none.gyt" "$W/bad.lfs"
refuse "a packed text from standard input" 'standard input is compressed' --tokenizer "$W/merges.txt" --out "$W/none.gyt" - <"$W/bad.gz"
run "$T" --tokenizer bytes --quiet --out "$W/packed.gyt" "$W/bad.gz"
want "any bytes are bytes" 0
refuse "text is not packed" 'bad.gz is compressed by gzip' --info "$W/bad.gz"
printf '\x93NUMPY\1\0v\0{}' >"$W/bad.npy"
refuse "ids with a header of NumPy" 'bad.npy is an array of NumPy.*tofile' --info "$W/bad.npy" --data-format nanogpt
check "the old file stays" cmp -s "$W/a.gyt" "$W/keep.gyt"
check "no half file is left" test -z "$(find "$W" -name '*.tmp-*')"

# A line for which there is no memory: all of it or an error, whatever request fails. It was read as no line, or with
# characters left out.
python3 -c 'print("{\"text\": \"" + "abcdefg " * 1000000 + "\"}")' >"$W/long.jsonl"
run "$T" --tokenizer bytes --jsonl --out "$W/long.gyt" "$W/long.jsonl"
want "a long line" 0
lacked=0 wrong=0
for kib in $(seq 30000 9000 160000); do
    rm -f "$W/few.gyt"
    (ulimit -v "$kib" && exec "$T" --tokenizer bytes --jsonl --out "$W/few.gyt" "$W/long.jsonl") >"$W/out" 2>"$W/err"
    case $? in
    0) cmp -s "$W/long.gyt" "$W/few.gyt" || wrong=$((wrong + 1)) ;;
    1) lacked=$((lacked + 1)) ;;
    127) ;; # not even the program's libraries fit
    *) wrong=$((wrong + 1)) ;;
    esac
done
check "a long line without memory: $lacked errors, $wrong wrong" [ "$lacked" -gt 2 -a "$wrong" = 0 ]
rm -f "$W/long.jsonl" "$W/long.gyt" "$W/few.gyt"

printf 'the only copy' >"$W/copy"
ln -s copy "$W/linked"
run "$T" --tokenizer bytes --out "$W/linked" "$W/copy"
want "an input as output" 2 "--out $W/linked would replace the INPUT $W/copy: name another file"
check "which is still there" grep -qx 'the only copy' "$W/copy"
cp "$W/merges.txt" "$W/only.txt"
run "$T" --tokenizer "gpt2:$W/only.txt" --out "$W/only.txt" "$W/copy"
want "the tokenizer as output" 2 "--out $W/only.txt would replace gpt2:$W/only.txt, which is read: name another file"
check "which is still there" cmp -s "$W/merges.txt" "$W/only.txt"
run "$T" --tokenizer bytes --jsonl --out "$W/none/x.gyt" "$W/bad.jsonl"
want "an output that cannot be written, before any text is read" 1 'cannot write .*none/x.gyt'
refuse "no tokenizer" '--tokenizer is missing' --out "$W/x.gyt" "$W/text"
refuse "no such text" "none" --tokenizer bytes --out "$W/x.gyt" "$W/none"
refuse "no end of text" 'no token for the end' --tokenizer bytes --eot --out "$W/x.gyt" "$W/text"
refuse "another tokenizer" 'is another' --decode "$W/a.gyt" --tokenizer bytes
refuse "which tokenizer" 'name its file with --tokenizer' --decode "$W/a.gyt"
refuse "an option that is none" 'unknown option --frobnicate; see gyre-tokenize --help' --frobnicate
refuse "a slip in an option" 'did you mean --tokenizer' --tokeniser bytes
refuse "no threads" '--threads 0: wants a whole number from 1 to 1024' --threads 0
refuse "a format that does not exist" '--data-format foo: wants auto, text' --data-format foo
mkdir "$W/in"
cp "$W/text" "$W/in/text"
for i in 1 2; do
    run "$T" --tokenizer bytes --out "$W/in/x.gyt" "$W/in"
    want "into the folder that is read, run $i" 0
done
# a signal leaves no half of a file: while it waits for standard input, and while it works
mkfifo "$W/endless"
for writer in 'sleep 20' "yes '{\"text\":\"word\"}'"; do
    bash -c "exec $writer" >"$W/endless" 2>/dev/null &
    writing=$!
    "$T" --tokenizer bytes --jsonl --quiet --out "$W/cut.gyt" - <"$W/endless" >"$W/out" 2>"$W/err" &
    pid=$!
    for ((i = 0; i < 200; i++)); do
        compgen -G "$W/cut.gyt.tmp-*" >"$W/found" && break
        sleep 0.05
    done
    sleep 0.1
    kill -TERM $pid
    rc=0
    wait $pid || rc=$?
    kill $writing 2>/dev/null
    wait $writing
    want "a signal" 143
    check "it had begun" test -s "$W/found"
    check "nothing is left of it" bash -c '! compgen -G "$1/cut.gyt*"' - "$W"
done

refuse "a part of a text" '--count is no option of writing a token file' --tokenizer bytes --out "$W/x.gyt" --count 5 "$W/text"
refuse "tokens as a text" '--data-format is no option of writing' --tokenizer bytes --out "$W/x.gyt" --data-format llmc "$W/text"
refuse "what a part holds" '--from is no option of --info' --info "$W/a.gyt" --from 5
refuse "ends of texts in what is there" '--eot is no option of --decode' --decode "$W/bytes.gyt" --eot
refuse "two tasks" 'exclude each other' --info "$W/a.gyt" --out "$W/x.gyt"
printf X | dd of="$W/keep.gyt" bs=1 seek=300 conv=notrunc 2>/dev/null
refuse "a damaged file" 'checksum of its tokens is wrong' --info "$W/keep.gyt"
check "nothing was written" test ! -e "$W/x.gyt"

# --- training on it ---
small=(--layers 1 --hidden 32 --heads 2 --seq 32 --batch 4 --steps 20 --warmup 2 --lr 0.01 --eval-sequences 8 --report none --peak-flops 1e9)
falls() { # the validation loss at the end against that at the start
    sed -nE 's/^validation loss +([0-9.]+) .*; ([0-9.]+) before.*/\1 \2/p' "$W/out" | awk '{ exit !($1 < $2 - 0.3) }'
}
run "$TRAIN" --data "$W/a.gyt" "${small[@]}" --sample-tokens 30 --tokenizer "$W/merges.txt" --log "$W/log"
want "trains on tokens" 0
check "the loss falls" falls
check "in nats per token" grep -q 'nats/token' "$W/out"
check "text is printed through the tokenizer" grep -q 'a sample of text' "$W/out"
run "$TRAIN" --data "$W/a.gyt" --vocab 50257 "${small[@]}" --steps 1 --batch 1 --sample-tokens 0
want "a model with more ids than the data" 0
run "$TRAIN" --data "$W/a.gyt" --vocab 260 "${small[@]}"
want "one with fewer" 2
check "it is reported" grep -q 'the data.s vocabulary has 270 ids' "$W/err"
run "$TRAIN" --data "$W/a.gyt" "${small[@]}" --sample-tokens 30
want "trains without the tokenizer" 0
check "and says why there is no sample" grep -q -- '--tokenizer' "$W/err"
for ranks in 1 2; do
    run "$UCX_RUN" -n $ranks --timeout 25 "$TRAIN" --data "3:$W/a.gyt,1:$W/folder1.gyt" --sampling epoch --valid-data "$W/lines1.gyt" \
        "${small[@]}" --sample-tokens 0 --log "$W/ranks$ranks"
    want "a blend on $ranks ranks" 0
    sed -nE 's/.*"step":([0-9]+),"loss":([^,]+),.*/\1 \2/p' "$W/ranks$ranks" >"$W/losses$ranks"
done
check "20 losses" test "$(wc -l <"$W/losses1")" = 20
check "the same sequences, hence losses, on any number of ranks" cmp -s "$W/losses1" "$W/losses2"
run "$TRAIN" --data "3:$W/a.gyt,1:$W/folder1.gyt" --sampling epoch --valid-data "$W/lines1.gyt" "${small[@]}" --sample-tokens 0 \
    --checkpoint "$W/run"
want "a blend, in epochs, validated elsewhere" 0
run "$TRAIN" --data "3:$W/a.gyt,1:$W/folder1.gyt" --sampling epoch --valid-data "$W/lines1.gyt" "${small[@]}" --sample-tokens 0 \
    --checkpoint "$W/run" --resume
want "goes on with the same data" 0
run "$TRAIN" --data "2:$W/a.gyt,1:$W/folder1.gyt" --sampling epoch --valid-data "$W/lines1.gyt" "${small[@]}" --sample-tokens 0 \
    --checkpoint "$W/run" --resume
want "other weights are other data" 2
check "which is told" grep -q -- '--may-change data' "$W/err"
finish
