#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/pipeline/evaluate_questions.py: what evaluate.sh and evaluate_compare.py know of questions by themselves: files in the
three formats, context and choices of each question, and accuracies from log-probabilities.

  write                      files of questions into this folder
  texts TASK FILE...         the text of each choice, one file each, into TASK.texts
  compare TASK FILE...       TASK.log and TASK.json against the log-probabilities of these texts, TASK.texts.log"""
import csv
import json
import math
import os
import re
import sys

POSITIONS = 192  # of evaluate.sh's model

HELLASWAG = [
    {"ind": 4, "activity_label": "Removing ice", "ctx_a": "A man [step] scrapes  the [title] window.", "ctx_b": "then THE Man",
     "ctx": "unused", "endings": ["drives off.", " [substeps] sits  down. ", "sings [title] loudly.", "scrapes."], "label": 3},
    {"activity_label": "Cards [x", "ctx_a": "She deals", "ctx_b": "", "endings": ["two", "\u00fcberall, na\u00efve", "no [one] five"], "label": "1"},
    {"activity_label": "Marks", "ctx_a": "He looks", "ctx_b": "UP and [step]", "endings": ["away.", "[x] there"], "label": 0},
    {"activity_label": "Long", "ctx_a": "word " * 36, "ctx_b": "x", "endings": ["is cut", "is not"], "label": 0},
]
ARC = [
    {"id": "Q1", "question": {"stem": "Which factor is largest?", "choices": [
        {"text": "wind", "label": "A"}, {"text": "water", "label": "B"}, {"text": "the sun", "label": "C"}]}, "answerKey": "C"},
    {"id": "Q2", "question": "Two \"words\"?", "choices": {"text": ["yes", "no", "per\u00f2", "x"], "label": ["1", "2", "3", "4"]}, "answerKey": "2"},
]
MMLU = 'Find 2,B2,C2,D2,E2,C\n"Which, of ""these""\nlines?",one,"two, or three",four,"fi\nve",A\n\n  spaces  ,a,b,c,\u00e9,D'


def clean(text):
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def questions(task, path):
    """(context, choices, answer) of each."""
    with open(path, encoding="utf-8", newline="") as file:
        if task == "mmlu":
            subject = re.sub(r"(_test|_val|_dev)?\.csv$", "", os.path.basename(path)).replace("_", " ")
            head = f"The following are multiple choice questions (with answers) about {subject}.\n\n"
            for row in csv.reader(file):
                if row:
                    options = "".join(f"\n{letter}. {text}" for letter, text in zip("ABCD", row[1:5]))
                    yield head + row[0].strip() + options + "\nAnswer:", list("ABCD"), "ABCD".index(row[5])
            return
        for doc in map(json.loads, filter(str.strip, file)):
            if task == "hellaswag":
                context = clean(f"{doc['activity_label']}: {doc['ctx_a']} {doc['ctx_b'].capitalize()}")
                yield context, [clean(ending) for ending in doc["endings"]], int(doc["label"])
            else:
                nested = isinstance(doc["question"], dict)
                choices = doc["question"]["choices"] if nested else [
                    {"text": t, "label": n} for t, n in zip(doc["choices"]["text"], doc["choices"]["label"])]
                stem = doc["question"]["stem"] if nested else doc["question"]
                yield (f"Question: {stem}\nAnswer:", [c["text"] for c in choices],
                       [c["label"] for c in choices].index(doc["answerKey"]))


def accuracies(asked, scores):
    """acc, acc_norm and acc_bytes; scores: a list for each question."""
    right = [0, 0, 0]
    for (_, choices, answer), score in zip(asked, scores):
        lengths = [[1] * len(choices), [len(c) for c in choices], [len(c.encode()) for c in choices]]
        for way, length in enumerate(lengths):
            values = [s / n for s, n in zip(score, length)]
            right[way] += values.index(max(values)) == answer
    return {name: count / len(asked) for name, count in zip(("acc", "acc_norm", "acc_bytes"), right)}


def write():
    for name, docs in (("hellaswag_val.jsonl", HELLASWAG), ("arc.jsonl", ARC)):
        with open(name, "w", encoding="utf-8") as out:
            for doc in docs:
                out.write(json.dumps(doc, ensure_ascii=len(doc) % 2 == 0) + "\n\n")
    with open("hellaswag_more.jsonl", "w", encoding="utf-8") as out:
        out.write(json.dumps(HELLASWAG[0]))
    for name in ("mmlu_abstract_algebra_test.csv", "mmlu_other.csv"):
        with open(name, "w", encoding="utf-8", newline="") as out:
            out.write(MMLU.replace("\n", "\r\n") if "other" in name else MMLU)


def pieces(task, paths):
    """(file, question, choice's number, context and choice of bytes as tokens, choice)."""
    for file, path in enumerate(paths):
        for number, (context, choices, _) in enumerate(questions(task, path)):
            kept = context.rstrip()
            for place, choice in enumerate(choices):
                follows = (context[len(kept):] + " " + choice).encode()
                yield file, number, place, kept.encode()[max(0, len(kept.encode()) + len(follows) - POSITIONS - 1):], follows, choice


def texts(task, paths):
    os.makedirs(f"{task}.texts", exist_ok=True)
    for file, number, place, context, choice, _ in pieces(task, paths):
        with open(f"{task}.texts/{file:03}-{number:03}-{place:03}", "wb") as out:
            out.write(context + choice)


def compare(task, paths):
    tokens = {}
    with open(f"{task}.texts.log", encoding="utf-8") as log:
        for line in map(json.loads, log):
            tokens.setdefault(line["file"], []).append(float.fromhex(line["logprob_hex"]))
    with open(f"{task}.log", encoding="utf-8") as log:
        said = [json.loads(line) for line in log]
    expected = list(pieces(task, paths))
    assert len(said) == len(tokens) == len(expected), (len(said), len(tokens), len(expected))
    scores = {}
    for text, (line, (file, number, place, context, choice, alone)) in enumerate(zip(said, expected)):
        total = 0.0
        for value in tokens[text][len(context) - 1:]:
            total += value
        assert (line["file"], line["choice"]) == (file, place) and line["tokens"] == len(choice), (line, choice)
        assert line["context_tokens"] == len(context) and float.fromhex(line["logprob_hex"]) == total == line["logprob"], (line, total)
        assert (line["characters"], line["bytes"]) == (len(alone), len(alone.encode())), (line, alone)
        scores.setdefault(file, {}).setdefault(number, []).append(total)
    with open(f"{task}.json", encoding="utf-8") as results:
        document = json.load(results)
    rows = document["results"]
    assert [row["file"] for row in rows] == paths and document["task"] == task
    everything = [], []
    for file, row in enumerate(rows):
        asked, got = list(questions(task, paths[file])), list(scores[file].values())
        everything[0].extend(asked)
        everything[1].extend(got)
        check_row(row, asked, got)
    if len(rows) > 1:
        check_row(document["all"], *everything)


def check_row(row, asked, scores):
    assert row["questions"] == len(asked), row
    for name, value in accuracies(asked, scores).items():
        error = row[name + "_stderr"]
        assert row[name] == value, (row, name, value)
        assert error is None if len(asked) == 1 else math.isclose(error, math.sqrt(value * (1 - value) / (len(asked) - 1)), abs_tol=1e-15)


if __name__ == "__main__":
    {"write": write, "texts": texts, "compare": compare}[sys.argv[1]](*([sys.argv[2], sys.argv[3:]] if len(sys.argv) > 2 else []))
