#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A loaded model is trained on the ids of its own tokenizer, or the run is refused and says what to do.
. "$(dirname "$0")/../../support/train.sh"
common=(--batch 4 --seq 16 --steps 1 --sample-tokens 0 --peak-flops 1e9 --report none --eval-sequences 4 --lr 0.001)
# three tokenizers of 256 bytes and one merge, as tokenizer.json, as OPT has its files, and another one
python3 - <<'PY'
import base64, json, os
def letters():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    return [chr(b) for b in keep] + [chr(256 + i) for i in range(len(rest))], keep + rest
names, codes = letters()
def json_of(first, second):
    vocab = {c: i for i, c in enumerate(names + [first + second])}
    return {"added_tokens": [], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
            "model": {"type": "BPE", "vocab": vocab, "merges": [f"{first} {second}"]}}
for folder in ("model", "opt"):
    os.mkdir(folder)
json.dump(json_of("1", "2"), open("model/tokenizer.json", "w"))
json.dump(json_of("2", "1"), open("other.json", "w"))
with open("model.cl100k.tiktoken", "w") as f: # the same ids, another way of cutting
    for i, c in enumerate([bytes([b]) for b in codes] + [b"12"]):
        f.write(f"{base64.b64encode(c).decode()} {i}\n")
open("merges.txt", "w").write("#version: 0.2\n1 2\n")
open("opt/merges.txt", "w").write("#version: 0.2\n1 2\n")
special = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
json.dump(special | {c: i + 4 for i, c in enumerate(names + ["12"])}, open("opt/vocab.json", "w"))
config = {"model_type": "gpt2", "n_layer": 1, "n_embd": 16, "n_head": 2, "vocab_size": 300, "n_positions": 16}
json.dump(config, open("config.json", "w"))
json.dump(config | {"vocab_size": 1024}, open("large.json", "w"))
json.dump(config | {"vocab_size": 256}, open("config256.json", "w"))
# 256 bytes, in GPT-2's order and in that of their numbers
for file, ids in (("letters.json", range(256)), ("asbytes.json", codes)):
    one = json_of("1", "2")
    one["model"] |= {"vocab": dict(zip(names, ids)), "merges": []}
    json.dump(one, open(file, "w"))
PY
for t in model/tokenizer.json other.json merges.txt opt/merges.txt model.cl100k.tiktoken; do
    name=${t%%/*}
    "$B/bin/gyre-tokenize" --tokenizer "$t" --out "${name%%.*}-${t##*.}.gyt" text >out.log 2>&1 || { cat out.log; exit 1; }
done
train --model config.json --data text --save new/
cp new/* model
cp new/* opt

train --load model --data model-json.gyt
refused "gyre-tokenize --tokenizer model/tokenizer.json --out FILE.gyt text" --load model --data text
train --load model --data text --tokenizer bytes
refused "but the model's is model/tokenizer.json" --load model --data other-json.gyt
refused "but the model's is model/tokenizer.json" --load model --data other-json.gyt --tokenizer other.json
refused "give the data's with --tokenizer" --load model --data model-tiktoken.gyt
train --load model --data model-tiktoken.gyt --tokenizer model.cl100k.tiktoken
refused "but the model's is opt/merges.txt" --load opt --data merges-txt.gyt # GPT-2's ids
train --load opt --data opt-txt.gyt

# a folder that is written over has the tokenizer of the new model, or none, and all files that are no model's
cp -r model over
echo mine >over/README.md
train --load opt --data opt-txt.gyt --save over/
[ "$(cd over && echo *)" = "README.md config.json merges.txt model.safetensors vocab.json" ] || { ls over; exit 1; }
train --load over --data opt-txt.gyt
refused "but the model's is over/merges.txt" --load over --data model-json.gyt
train --load opt/model.safetensors --heads 2 --data opt-txt.gyt --save over/
train --load over --data opt-txt.gyt
train --model config.json --data model-json.gyt --save over/
[ "$(cd over && echo *)" = "README.md config.json model.safetensors" ] || { ls over; exit 1; }
train --model config.json --data model-json.gyt --checkpoint before
cp model/tokenizer.json over
"$B/bin/gyre-train" --export before over >out.log 2>&1 || { cat out.log; exit 1; }
[ "$(cd over && echo *)" = "README.md config.json model.safetensors" ] || { ls over; exit 1; }
cp model/tokenizer.json over
refused "--tokenizer over/tokenizer.json is in the folder over/" --model config.json --data model-json.gyt --save over/ \
    --tokenizer over/tokenizer.json
[ -e over/tokenizer.json ]
train --load over --data model-json.gyt --save over/ --tokenizer over/tokenizer.json
[ -e over/tokenizer.json ]

# no output over a file of the tokenizer or in the folder of the model, also through a link
cp -r model whole
ln -s whole/config.json linked.json
for output in report log trace save; do
    refused "--$output ./other.json would replace other.json, which is read" --model config.json --data other-json.gyt \
        --tokenizer other.json --$output ./other.json
done
refused "--report linked.json would replace a file of whole/, which is read" --load whole/ --data model-json.gyt --report linked.json
refused "--log whole/model.safetensors would replace a file of whole" --load whole --data model-json.gyt --log whole/model.safetensors
refused "--trace whole/tokenizer.json would replace a file of whole" --load whole --data model-json.gyt --trace whole/tokenizer.json
refused "--save merges.txt would replace gpt2:merges.txt" --model config.json --data merges-txt.gyt --tokenizer gpt2:merges.txt \
    --save merges.txt
refused "--report whole/model.safetensors would replace whole/model.safetensors" --load whole/model.safetensors --heads 2 \
    --data model-json.gyt --report whole/model.safetensors
for file in config.json tokenizer.json; do
    for output in report save; do
        refused "--$output whole/$file would replace a file next to whole/model.safetensors, which is read" --load whole/model.safetensors \
            --heads 2 --data model-json.gyt --$output whole/$file
    done
    refused "--save whole/$file would replace a file of whole, which is read" --load whole --data model-json.gyt --save whole/$file
done
diff -r model whole
cp -r whole parts # one part of several is not all weights
python3 - <<'PY'
import json, os, struct
os.rename("parts/model.safetensors", "parts/model-00001-of-00001.safetensors")
with open("parts/model-00001-of-00001.safetensors", "rb") as f:
    names = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
json.dump({"weight_map": {n: "model-00001-of-00001.safetensors" for n in names if n != "__metadata__"}},
          open("parts/model.safetensors.index.json", "w"))
PY
for file in model.safetensors.index.json model-00001-of-00001.safetensors; do
    refused "--save parts/$file would replace a file of parts, which is read" --load parts --data model-json.gyt --save parts/$file
done
train --load parts --data model-json.gyt
# but weights are replaced by new ones, and what a run has left there by that of the next
for _ in 1 2; do
    train --load whole --data model-json.gyt --report whole/report.html --log whole/log.jsonl --save whole/model.safetensors
    train --load whole --data model-json.gyt --log whole/my-chat-config.json
    train --load whole/model.safetensors --heads 2 --data model-json.gyt --log whole/other.safetensors
    [ -s whole/report.html ] && [ -s whole/log.jsonl ]
done

# data that does not say its tokenizer: one line, or what --tokenizer says of it is compared
python3 -c 'import struct; open("ids.bin", "wb").write(struct.pack("<4000H", *(i * 7 % 257 for i in range(4000))))'
plain=(--load model --data ids.bin --data-format nanogpt)
unknown="whether the ids of .* are those of the model in .* is not known"
train "${plain[@]}"
grep -q "$unknown: the data does not say its tokenizer" out.log
train "${plain[@]}" --tokenizer model/tokenizer.json
grep -q "$unknown" out.log && exit 1
refused "--tokenizer other.json, of the data, has other ids than the model's" "${plain[@]}" --tokenizer other.json

# a checkpoint says the tokenizer of its data: what is of another is refused, by every tool and by --resume
tool() { # TEXT TOOL arguments: as `refused`, of another tool; an empty TEXT: it is well
    local text=$1 status=
    shift
    "$B/bin/$1" "${@:2}" --quiet >out.log 2>&1 || status=$?
    if [ "$status" != "${text:+2}" ] || ! grep -qF -- "$text" out.log; then
        echo "status $status, not '$text': $*"
        cat out.log
        return 1
    fi
}
train --model config.json --data model-json.gyt --checkpoint run
train --load run --data model-json.gyt
grep -q "$unknown" out.log && exit 1
refused "other-json.gyt is of tokenizer 'other.json'" --load run --data other-json.gyt
grep -q "but the model in run has learned the ids of 'tokenizer.json'" out.log
refused "text is of tokenizer 'bytes'" --load run --data text
refused "ids.bin is of tokenizer 'other.json'" --load run --data ids.bin --data-format nanogpt --tokenizer other.json
train --load run --data ids.bin --data-format nanogpt
grep -q "$unknown: the data does not say its tokenizer" out.log
refused "other-json.gyt is of tokenizer 'other.json'" --model config.json --data other-json.gyt --checkpoint run --resume --may-change data
tool "" gyre-generate --load run --tokenizer model/tokenizer.json --prompt 12 --tokens 2
tool "--tokenizer other.json is of tokenizer 'other.json'" gyre-generate --load run --tokenizer other.json --prompt 12
tool "the ids of the model in run are of tokenizer 'tokenizer.json'" gyre-generate --load run --prompt 12
tool "" gyre-eval --load run model-json.gyt --limit 40
tool "other-json.gyt is of tokenizer 'other.json'" gyre-eval --load run other-json.gyt
tool "--tokenizer other.json is of tokenizer 'other.json'" gyre-eval --load run --tokenizer other.json text
# of bytes, whatever the vocabulary; and one that does not say, as those of an older Gyre
train --model config.json --data text --checkpoint bytes
tool "" gyre-generate --load bytes --prompt 12 --tokens 2
train --model config.json --data ids.bin --data-format nanogpt --checkpoint unsaid
grep -q '"tokenizer"' unsaid/*/index.json && exit 1
tool "" gyre-generate --load unsaid --tokenizer other.json --prompt 12 --tokens 2
tool "which tokenizer the ids of the model in unsaid are from is not known" gyre-generate --load unsaid --prompt 12
train --load unsaid --data other-json.gyt
grep -q "$unknown: the checkpoint does not say its tokenizer" out.log

# and a folder's own tokenizer, as in training: other ids are refused, another way of cutting is not, and bytes may be meant
both() { # TEXT arguments: both tools
    tool "$1" gyre-generate --prompt 12 --tokens 2 "${@:2}"
    tool "$1" gyre-eval --limit 40 text "${@:2}"
}
both "--tokenizer other.json has other ids than the model's, which is model/tokenizer.json" --load model --tokenizer other.json
for same in merges.txt model/tokenizer.json model.cl100k.tiktoken bytes; do
    both "" --load model --tokenizer $same
done

# a model whose tokenizer cannot be read: refused, unless --tokenizer says what the data's ids are
echo '{"model": {"type": "Lattice"}}' >model/tokenizer.json
refused "name the tokenizer of the data with --tokenizer" --load model --data other-json.gyt
grep -q "$unknown: .*Lattice" out.log
refused "name the tokenizer of the data with --tokenizer" "${plain[@]}"
train --load model --data other-json.gyt --tokenizer other.json
grep -q "$unknown: .*Lattice" out.log

# so is one of a kind that Gyre does not know, by its name alone; other files in the folder are none
for name in tekken.json qwen.tiktoken vocab.txt sentencepiece.bpe.model spiece.model; do
    rm -rf unknown
    cp -r new unknown
    echo "not a tokenizer" >unknown/$name
    echo "not a tokenizer" >unknown/notes.txt
    refused "the model in unknown is not known: " --load unknown --data model-json.gyt
    grep -q "unknown/$name.*: if they are, name the tokenizer of the data with --tokenizer" out.log
    refused "--tokenizer bytes" --load unknown --data text
    train --load unknown --data model-tiktoken.gyt --tokenizer model.cl100k.tiktoken
    grep -q "$unknown: .*unknown/$name" out.log
    train --load unknown --data text --tokenizer bytes
    train --load unknown --data model-json.gyt --tokenizer none --sample-tokens 2
    if grep -q "no sample of text" out.log; then cat out.log; exit 1; fi
    refused "text needs a tokenizer" --load unknown --data text --tokenizer none
    refused "--prompt needs a tokenizer" --load unknown --data model-json.gyt --tokenizer none --prompt word
    tool "" gyre-eval --load unknown --tokenizer none model-json.gyt --limit 40
    tool "is not known: name it with --tokenizer" gyre-eval --load unknown --tokenizer none text --limit 40
    tool "unknown/$name" gyre-eval --load unknown model-json.gyt
    tool "" gyre-eval --load unknown --tokenizer model.cl100k.tiktoken model-tiktoken.gyt --limit 40
    grep -q "whether the ids of --tokenizer model.cl100k.tiktoken are those of the model in unknown is not known" out.log
done
# a model of 256 ids with a tokenizer of its own: bytes are compared with its ids
train --model config256.json --data text --save own/
train --load own --data text
cp letters.json own/tokenizer.json
refused "the ids of the model in own are not bytes: write a token file first, gyre-tokenize --tokenizer own/tokenizer.json" \
    --load own --data text
"$B/bin/gyre-tokenize" --tokenizer bytes --out bytes.gyt text >out.log 2>&1
refused "but the model's is own/tokenizer.json" --load own --data bytes.gyt
train --load own --data text --tokenizer bytes
cp asbytes.json own/tokenizer.json
train --load own --data text
train --load own --data bytes.gyt
# the tokenizer of a file of weights lies next to it
cp other.json new/tokenizer.json
file=(--load new/model.safetensors --heads 2)
refused "but the model's is new/tokenizer.json" "${file[@]}" --data model-json.gyt
train "${file[@]}" --data other-json.gyt
tool "has other ids than the model's, which is new/tokenizer.json" gyre-generate "${file[@]}" --prompt 12 --tokenizer merges.txt
rm new/tokenizer.json

# SentencePiece's file of the same ids as tokenizer.json, as folders of Llama 2 have both: only the unknown token has another text
python3 - <<'PY'
import json, struct
names = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "\u2581", "1", "2", "12"]
def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data
def model(words): # 2: unknown, 3: control, 6: a byte, 1: others
    kinds = [2, 3, 3] + 256 * [6] + (len(words) - 259) * [1]
    return b"".join(field(1, field(1, word.encode()) + b"\x15" + struct.pack("<f", -i) + bytes([0x18, kind]))
                    for i, (word, kind) in enumerate(zip(words, kinds))) + field(2, b"\x18\x02\x98\x02\x01")
open("same.model", "wb").write(model(names))
open("swapped.model", "wb").write(model(names[:-3] + ["2", "1", "12"]))
space = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
json.dump({"added_tokens": [{"id": i, "content": names[i], "special": True} for i in range(3)],
           "normalizer": {"type": "Sequence", "normalizers": [
               {"type": "Prepend", "prepend": "\u2581"}, space | {"pattern": {"String": " "}, "content": "\u2581"}]},
           "decoder": {"type": "Sequence", "decoders": [space, {"type": "ByteFallback"}, {"type": "Fuse"},
                                                        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
           "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                     "vocab": {name: i for i, name in enumerate(names)}, "merges": ["1 2"]}}, open("new/tokenizer.json", "w"))
PY
if "$B/bin/gyre-tokenize" --tokenizer same.model --out same.gyt text >out.log 2>&1; then
    train --load new --data same.gyt --tokenizer same.model
    both "" --load new --tokenizer same.model
    tool "" gyre-eval --load new --tokenizer same.model same.gyt --limit 40
    both "--tokenizer swapped.model has other ids than the model's" --load new --tokenizer swapped.model
elif ! grep -q "SENTENCEPIECE=1" out.log; then
    cat out.log
    exit 1
fi
rm new/tokenizer.json

# without a tokenizer: as many ids as a model of bytes may have, and more; tokens
train --load new --data text
grep -q "warning: .*are bytes, 0 to 255, but the model in new has 300 ids" out.log
train --load new --data text --tokenizer bytes
grep -q "0 to 255, but" out.log && exit 1
train --load new --data model-json.gyt
grep -q "$unknown: the model has no tokenizer there" out.log
train --model large.json --data text --save large/
grep -q "bytes of text .*, as the first 256 of 1024 ids" out.log
refused "the 1024 ids of the model in large are not bytes" --load large --data text
refused "bytes.gyt is a file of bytes as tokens, but the 1024 ids" --load large --data bytes.gyt
train --load large --data bytes.gyt --tokenizer bytes
echo "a loaded model gets ids of its own tokenizer"
