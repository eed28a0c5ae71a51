#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Conversations, and prompts with completions, against `transformers`, with tokenizers that put a space before a text: the ids are
those of the whole text, whose tokens of the template are split out, and learned is what follows the ids of the text before an answer.
Where a token reaches over the beginning of an answer, the ids before it are those of the text before it alone."""
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import jinja_compare
import tokenizer_kinds_compare as kinds

try:
    import transformers
except ImportError as lacking:
    print(f"skipped: {lacking.name} is not installed (tools/setup references)")
    sys.exit(77)

PROGRAMS = {
    "zephyr": "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + eos_token + '\n' }}{% endfor %}",
    "mistral": "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
               "{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}",
}
ENDS = {"zephyr": "</s>", "mistral": "</s>"}
TALKS = 150


def say(rng, words):
    """Words, with spaces of all kinds between and around."""
    out = [rng.choice(["", "", " ", "  ", "\n"])]
    for _ in range(rng.randint(1, 6)):
        out += [rng.choice(words), rng.choice([" ", " ", " ", "  ", "\n", ". ", "\u3000", ""])]
    return "".join(out)


def talk(rng, words):
    return [{"role": role, "content": say(rng, words)} for _ in range(rng.randint(1, 3)) for role in ("user", "assistant")]


def documents(path):
    """(ids, learned) of each."""
    with open(path, "rb") as file:
        data = file.read()
    (mask,) = struct.unpack_from("<Q", data, 224)
    at = 0
    for ids in kinds.tokens_of(path):
        yield ids, [data[mask + i // 8] >> i % 8 & 1 for i in range(at, at + len(ids))]
        at += len(ids)


# What is learned of jinja_compare's programs.
LEARNED = {
    "dates": r"<\|head\|>assistant<\|end_head\|>\n\n(.*?<\|end\|>)",
    "channels": r"<\|start\|>assistant(<\|channel\|>analysis.*?<\|return\|>|<\|channel\|>final.*?<\|(?:return|end)\|>)",
    "phi": r"<\|assistant\|>\n(.*?<\|end\|>)",
    "glm": r"<\|assistant\|>(\n.*?(?:<\|user\|>|\Z))",
    "deepseek": r"<A>(.*?<E>)",
}


# The constructs for tools of: Qwen2.5 and 3, Llama 3.1 to 3.3, gpt-oss, Mistral, Gemma 4.
TOOL_PROGRAMS = {
    "qwen": """{%- if tools %}{{- '<|im_start|>system\n' }}{%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
{{- "# Tools\n<tools>" }}{%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}{{- "\n</tools><|im_end|>\n" }}
{%- elif messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{%- endif %}
{%- for message in messages %}
    {%- if message.role == "user" %}{{- '<|im_start|>user\n' + message.content + '<|im_end|>\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>assistant' }}{%- if message.content %}{{- '\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\n<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' }}{{- tool_call.arguments | tojson }}{{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != "tool" %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != "tool" %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}""",
    "llama": """{{- bos_token }}{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}{%- set said = messages[0]['content']|trim %}{%- set messages = messages[1:] %}{%- else %}{%- set said = "" %}{%- endif %}
{{- "<|head|>system<|end_head|>\n\n" }}{%- if tools is not none %}{{- "Environment: ipython\n" }}{%- endif %}{{- said + "<|eot|>" }}
{%- if not tools is none %}
    {%- set first = messages[0]['content']|trim %}{%- set messages = messages[1:] %}{{- '<|head|>user<|end_head|>\n\n' -}}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\n\n" }}{%- endfor %}{{- first + "<|eot|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|head|>' + message['role'] + '<|end_head|>\n\n'+ message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("one call at a time!") }}{%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|head|>assistant<|end_head|>\n\n' -}}{{- '{"name": "' + tool_call.name + '", "parameters": ' }}{{- tool_call.arguments | tojson }}{{- "}" }}{{- "<|eot|>" }}
    {%- else %}
        {{- "<|head|>ipython<|end_head|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}{{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|head|>assistant<|end_head|>\n\n' }}{%- endif %}""",
    "harmony": """{{- "<|start|>system<|message|>Today: " + strftime_now("%Y-%m-%d") + "<|end|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" %}{%- set developer = messages[0].content %}{%- set rest = messages[1:] %}
{%- else %}{%- set developer = "" %}{%- set rest = messages %}{%- endif %}
{%- if developer or tools %}
    {{- "<|start|>developer<|message|>" + developer }}
    {%- if tools %}{%- for tool in tools %}{%- set tool = tool.function %}{{- "// " + tool.description + "\ntype " + tool.name }}
        {%- for name, spec in tool.parameters.properties.items() %}{{- name + ("?" if name not in tool.parameters.required else "") + ": " + spec.type }}
        {%- endfor %}{%- endfor %}{%- endif %}
    {{- "<|end|>" }}
{%- endif %}
{%- set last = namespace(name=none) %}
{%- for message in rest -%}
    {%- if message.role == 'assistant' -%}
        {%- if "content" in message %}{%- if "<|channel|>" in message.content %}{{- raise_exception("channels") }}{%- endif %}{%- endif %}
        {%- if "tool_calls" in message %}
            {%- set call = message.tool_calls[0].function %}
            {%- if message.content %}{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.content + "<|end|>" }}{%- endif %}
            {{- "<|start|>assistant to=functions." + call.name + "<|channel|>commentary json<|message|>" + call.arguments|tojson + "<|call|>" }}
            {%- set last.name = call.name %}
        {%- elif loop.last and not add_generation_prompt %}{{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>" }}
        {%- else %}{{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}{%- endif %}
    {%- elif message.role == 'tool' -%}
        {{- "<|start|>functions." + last.name + " to=assistant<|channel|>commentary<|message|>" + message.content|tojson + "<|end|>" }}
    {%- elif message.role == 'user' -%}{{- "<|start|>user<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}""",
    "mistral": """{%- if messages[0]['role'] == 'system' %}{%- set said = messages[0]['content'] %}{%- set rest = messages[1:] %}{%- else %}{%- set rest = messages %}{%- endif %}
{%- set asked = rest | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in rest %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == asked[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}{%- set tool = tool.function %}{{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}{%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}{{- "}}" }}{%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}{{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {{- "[INST] " + (said + "\n\n" if loop.last and said is defined else "") + message["content"] + "[/INST]" }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}{%- set out = tool_call.function|tojson %}{{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}{{- raise_exception("ids have nine characters") }}{%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}{%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}{{- message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + ', "call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}{{- raise_exception("Only user and assistant roles are supported!") }}{%- endif %}
{%- endfor %}""",
    "gemma": """{{- bos_token }}{%- set ns = namespace(last=-1) %}
{%- for message in messages %}{%- if message.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|turn>model\n' }}
        {%- if message.reasoning and loop.index0 > ns.last %}{{- '<|channel>thought\n' + message.reasoning + '<channel|>' }}{%- endif %}
        {%- for call in message.tool_calls %}{{- '<|tool_call>call:' + call.function.name + call.function.arguments | tojson + '<tool_call|>' }}{%- endfor %}
        {%- if message.tool_calls %}
            {{- '<|tool_response>' }}
            {%- for k in range(loop.index, messages | length) %}
                {%- if messages[k].role != 'tool' %}{%- break %}{%- endif %}
                {{- 'response:' + message.tool_calls[0].function.name + '{' + messages[k].content + '}<tool_response|>' }}
            {%- endfor %}
        {%- else %}{{- message.content + '<turn|>\n' }}{%- endif %}
    {%- elif message.role != 'tool' %}{{- '<|turn>' + message.role + '\n' + message.content + '<turn|>\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|turn>model\n' }}{%- endif %}""",
}
LEARNED_OF_TOOLS = {
    "qwen": r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)",
    "llama": r"<\|head\|>assistant<\|end_head\|>\n\n(.*?<\|eot\|>)",
    "harmony": r"<\|start\|>assistant(.*?(?:<\|return\|>|<\|call\|>|final<\|message\|>.*?<\|end\|>))",
    "gemma": r"<\|turn>model\n(.*?(?:<\|tool_response>|<turn\|>))",
    "mistral": r"(\[TOOL_CALLS\].*?</s>)|(?:\[/INST\]|\[/TOOL_RESULTS\])((?!\[TOOL_).*?</s>)",
}


def tool_talk(rng, words, several):
    """A conversation with calls of tools, as `transformers` wants it."""
    words = [word for word in words if "[" not in word]

    def value(depth):
        return rng.choice([say(rng, words), rng.randint(-9, 10**12), rng.choice([0.1, 48.85, -1e-7, 3e22 / 1e7, 2.0]), True, None,
                           *([[value(depth - 1)], {say(rng, words): value(depth - 1), "role": "caf\u00e9"}] if depth else [])])

    out = [{"role": "system", "content": say(rng, words)}] if rng.random() < 0.3 else []
    for _ in range(rng.randint(1, 2)):
        out.append({"role": "user", "content": say(rng, words)})
        for _ in range(rng.randint(0, 2)):
            calls = [{"id": f"call{rng.randint(10000, 99999)}", "type": "function",
                      "function": {"name": rng.choice(["weather", "find_it"]), "arguments": {key: value(2) for key in ("a", "b b")[:rng.randint(0, 2)]}}}
                     for _ in range(rng.randint(1, 2) if several else 1)]
            out.append({"role": "assistant", "tool_calls": calls, **({"reasoning": say(rng, words)} if rng.random() < 0.5 else {})})
            out += [{"role": "tool", "tool_call_id": call["id"], "content": say(rng, words)} for call in calls]
        out.append({"role": "assistant", "content": rng.choice(words) + say(rng, words)})
    return out


TOOLS = [{"type": "function", "function": {"name": name, "description": f"Says \"{name}\".", "parameters": {
    "type": "object", "properties": {"a": {"type": "string", "description": "caf\u00e9"}, "b b": {"type": "number", "minimum": 0.5}}, "required": ["a"]}}}
         for name in ("weather", "find_it")]


class Comparison:
    def __init__(self, folder, words):
        self.folder, self.words, self.decode, self.same, self.over, self.wrong = folder, words, None, 0, 0, 0

    def gyre(self, spec, template, lines):
        chats, out = (os.path.join(self.folder, name) for name in ("chats.jsonl", "chats.gyt"))
        with open(chats, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        subprocess.run([f"{kinds.BUILD}/bin/gyre-tokenize", "--tokenizer", spec, "--jsonl", "--quiet", "--out", out,
                        *(["--template", template] if template else ["--date", jinja_compare.DATE]), chats], check=True, stdout=subprocess.DEVNULL)
        return list(documents(out))

    def compare(self, name, got, text, encode, answers):
        """`answers`: where each begins and ends in the text."""
        ids, learned, right = encode(text), [], True
        for begin, end in answers:
            before, end = encode(text[:begin]), len(encode(text[:end]))
            if ids[:len(before)] != before:
                right = got[0][:len(before)] == before and self.decode(got[0]) == self.decode(ids)
                self.over += right
                break
            learned += [0] * (len(before) - len(learned)) + [1] * (end - len(before))
        else:
            right = got == (ids, learned + [0] * (len(ids) - len(learned)))
            self.same += right
        if right:
            return
        self.wrong += 1
        if self.wrong < 6:
            print(f"{name}: {text!r} is {got}, not {ids}, {learned}")

    def chats(self, name, spec, tokenizer, template):
        rng, program = random.Random(7), PROGRAMS[template]
        talks = [talk(rng, self.words) for _ in range(TALKS)]
        for said, got in zip(talks, self.gyre(spec, template, [{"messages": said} for said in talks])):
            text = tokenizer.apply_chat_template(said, chat_template=program, tokenize=False)

            def encode(part, whole=text, said=said):
                return (tokenizer.apply_chat_template(said, chat_template=program) if part == whole
                        else tokenizer.encode(part, add_special_tokens=False))

            answers, at = [], 0
            for message in said:
                end = tokenizer.apply_chat_template(said[:said.index(message) + 1], chat_template=program, tokenize=False)
                if message["role"] == "assistant":
                    at = end.rindex(message["content"] + ENDS[template])
                    answers.append((at, len(end.rstrip("\n"))))
            self.compare(f"{name}, {template}", got, text, encode, answers)

    def pairs(self, name, spec, tokenizer):
        rng = random.Random(8)
        pairs = [(say(rng, self.words), say(rng, self.words)) for _ in range(TALKS)]
        pairs += [("The answer is", " Hello"), ("The answer is ", "Hello"), ("", "Hello")]
        got = self.gyre(spec, "zephyr", [{"prompt": a, "completion": b} for a, b in pairs])
        for (prompt, completion), (ids, learned) in zip(pairs, got):
            assert ids[-1] == tokenizer.eos_token_id and learned[-1] == 1
            self.compare(f"{name}, pairs", (ids[:-1], learned[:-1]), prompt + completion,
                         lambda text: tokenizer.encode(text, add_special_tokens=False), [(len(prompt), len(prompt + completion))])

    def program(self, name, spec, tokenizer):
        """A folder whose own program is read; answers with the thoughts that some programs write."""
        text_of, rng = jinja_compare.PROGRAMS[name], random.Random(9)
        with open(os.path.join(self.folder, "chat_template.jinja"), "w", encoding="utf-8") as file:
            file.write(text_of)
        with open(os.path.join(self.folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
            json.dump({"bos_token": {"content": "<s>"}, "eos_token": "</s>"}, file)
        talks = [talk(rng, self.words) for _ in range(TALKS)]
        for said in talks[::3]:
            said.insert(0, {"role": "system", "content": say(rng, self.words)})
            said[-1]["thinking"] = say(rng, self.words)
        reference = jinja_compare.reference._compile_jinja_template(text_of)
        reference.globals["strftime_now"] = jinja_compare.today
        lines = [{"messages": [{key.replace("thinking", "reasoning_content"): value for key, value in message.items()} for message in said]}
                 for said in talks]
        for said, got in zip(talks, self.gyre(spec, None, lines)):
            text = reference.render(messages=said, tools=None, documents=None, add_generation_prompt=False, bos_token="<s>", eos_token="</s>")
            spans = [match.span(1) for match in re.finditer(LEARNED[name], text, re.S)]
            assert len(spans) == sum(message["role"] == "assistant" for message in said), (spans, text)
            self.compare(name, got, text, lambda part: tokenizer.encode(part, add_special_tokens=False), spans)
        for file in ("chat_template.jinja", "tokenizer_config.json"):
            os.remove(os.path.join(self.folder, file))

    def tools(self, name, spec, tokenizer):
        """A folder's program with conversations that call tools, in OpenAI's format."""
        text_of, rng, self.decode = TOOL_PROGRAMS[name], random.Random(10), tokenizer.decode
        with open(os.path.join(self.folder, "chat_template.jinja"), "w", encoding="utf-8") as file:
            file.write(text_of)
        with open(os.path.join(self.folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
            json.dump({"bos_token": "<s>", "eos_token": "</s>"}, file)
        talks = [(tool_talk(rng, self.words, name in ("qwen", "mistral", "gemma")), TOOLS if name != "gemma" and rng.random() < 0.8 else None)
                 for _ in range(TALKS)]
        lines = []
        for said, tools in talks:
            said = json.loads(json.dumps(said))
            for message in said:
                if message.get("content") and rng.random() < 0.3:
                    message["content"] = [{"type": "text", "text": message["content"], "image_url": None}]
                elif "tool_calls" in message and rng.random() < 0.3:
                    message["content"] = ""
                if rng.random() < 0.5:
                    message.update({key: None for key in ("content", "tool_calls", "tool_call_id", "name") if key not in message})
                for call in message.get("tool_calls") or []:
                    if rng.random() < 0.7:
                        call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
            lines.append({"messages": said, "tools": tools, "parallel_tool_calls": False})
        reference = jinja_compare.reference._compile_jinja_template(text_of)
        reference.globals["strftime_now"] = jinja_compare.today
        for (said, tools), got in zip(talks, self.gyre(spec, None, lines)):
            text = reference.render(messages=said, tools=tools, documents=None, add_generation_prompt=False, bos_token="<s>", eos_token="</s>")
            spans = [match.span(match.lastindex) for match in re.finditer(LEARNED_OF_TOOLS[name], text, re.S)]
            assert len(spans) == sum(message["role"] == "assistant" for message in said), (spans, text)
            self.compare(f"{name}, tools", got, text, lambda part: tokenizer.encode(part, add_special_tokens=False), spans)
        for file in ("chat_template.jinja", "tokenizer_config.json"):
            os.remove(os.path.join(self.folder, file))

    def tokenizer(self, name, spec, tokenizer):
        self.decode = tokenizer.decode
        for template in PROGRAMS:
            self.chats(name, spec, tokenizer, template)
        self.pairs(name, spec, tokenizer)

    def own(self, spec):
        """Symbols of a .model file that are tokens of the template are not taken from messages, and others are."""
        said = "a <start_of_turn>user<tool><end_of_turn> <bos>"
        reference = kinds.sentencepiece.SentencePieceProcessor(model_file=spec)
        ((ids, _),) = self.gyre(spec, "gemma", [{"messages": [{"role": "user", "content": said}, {"role": "assistant", "content": "b"}]}])
        symbols = [reference.piece_to_id(piece) for piece in ("<start_of_turn>", "<end_of_turn>", "<tool>")]
        if [ids.count(symbol) for symbol in symbols] != [2, 2, 1] or not reference.decode(ids[2:]).startswith(f"user\n{said}<end_of_turn>\n"):
            self.wrong += 1
            print(f"symbols, gemma: {said!r} is {ids}, {reference.decode(ids)!r}")


def main():
    text = []
    for name in kinds.DOCUMENTS:
        with open(name, encoding="utf-8") as file:
            text += [line for line in file.read().split("\n") if line.strip()]
    words = [word for word in " ".join(text[:400]).split() if "<" not in word] + ["caf\u00e9", "\u4e2d\u6587", "[INST]", "Hello"]
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(folder, words)
        model, ends = kinds.bpe(text, 900, mark=True)
        for name, parts in {"llama2": {"normalizer": kinds.PREPENDED}, "first": {"pre": kinds.metaspace("first", False)},
                            "always": {"pre": kinds.metaspace("always")}}.items():
            spec = os.path.join(folder, "tokenizer.json")
            with open(spec, "w", encoding="utf-8") as file:
                json.dump(kinds.whole(model, added=ends, decoder=kinds.LLAMA2, **parts), file)
            comparison.tokenizer(name, spec, transformers.PreTrainedTokenizerFast(tokenizer_file=spec, bos_token="<s>", eos_token="</s>",
                                                                                  clean_up_tokenization_spaces=False))
        model, added = kinds.byte_bpe(text, 900)
        programs = {**{(name, "program"): text for name, text in jinja_compare.PROGRAMS.items()}, **{(name, "tools"): text for name, text in TOOL_PROGRAMS.items()}}
        for (name, kind), program in programs.items():
            words = ["<s>", "</s>", *(f"<|{word}|>" for word in ("system", "user", "assistant")),
                     *sorted(set(re.findall(r"<[^<> +]*[^<> +=-]>|\[gMASK\]|\[/?[A-Z_]+\]", program)))]
            tokens = [kinds.flags(word, len(model["vocab"]) + len(added) + i, rstrip=name == "phi" and "|" in word)
                      for i, word in enumerate(dict.fromkeys(words))]
            with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
                json.dump(kinds.whole(model, added=added + tokens, pre=kinds.level(), decoder=kinds.level()), file)
            getattr(comparison, kind)(name, os.path.join(folder, "tokenizer.json"), transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json")))
        spec = kinds.library(folder, "llama", text, **kinds.MODELS["llama"])
        without = "cannot read" in subprocess.run([f"{kinds.BUILD}/bin/gyre-tokenize", "--tokenizer", spec, "--out", os.path.join(folder, "x"),
                                                   "README.md"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False).stderr.decode()
        if not without:
            comparison.tokenizer("model", spec, transformers.LlamaTokenizer(spec, legacy=True))
            symbols = ["<start_of_turn>", "<end_of_turn>", "<tool>"]
            comparison.own(kinds.library(folder, "symbols", text, **dict(kinds.MODELS["gemma-model"], user_defined_symbols=symbols,
                                                                         bos_piece="<bos>")))
        print(f"{comparison.same} as `transformers`, {comparison.over} with a token over the beginning of an answer, {comparison.wrong} wrong")
    if without and not comparison.wrong:
        print("skipped: this build is without SentencePiece (tools/setup check): tokenizer.json agrees")
        return 77
    return int(comparison.wrong > 0 or comparison.same < 4 * comparison.over)


if __name__ == "__main__":
    sys.exit(main())
