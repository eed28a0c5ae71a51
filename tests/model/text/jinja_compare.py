#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of chat templates against Jinja2 as `transformers` sets it up: random expressions and statements, and programs with the
constructs of published models on random conversations. What model/jinja refuses by name is no difference; how much it refuses is
bounded. JINJA_PROGRAMS: how many random programs (150); TEMPLATES=FOLDER: the *.jinja files there, too, and what they refuse is
printed."""
import copy
import datetime
import glob
import json
import os
import random
import subprocess
import sys
import warnings
import tempfile

try:
    import jinja2
    import transformers.utils.chat_template_utils as reference
except ImportError as lacking:
    print(f"skipped: {lacking.name} is not installed (tools/setup references)")
    sys.exit(77)

warnings.simplefilter("ignore", SyntaxWarning)
BUILD = os.environ.get("B", "build")
COUNT = int(os.environ.get("JINJA_PROGRAMS", "150"))
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "add_generation_prompt": False, "tools": None, "documents": None,
             "reals": [0.1, 1e-5, 1e16, 123456789.125, -0.0, 2.0]}
REFUSED = ("is not supported", "are not supported", "is taken for a text", "does not take these")
DATE = "2026-11-05"

# The constructs of: Llama 3.2 and 3.3, gpt-oss, Phi-3, Phi-4, GLM-4, DeepSeek-V3.
PROGRAMS = {
    "dates": """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "1 Jan 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{#- the system's message #}
{%- if messages[0]['role'] == 'system' %}
    {%- set said = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set said = "" %}
{%- endif %}
{{- "<|head|>system<|end_head|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Tools: " + (tools | tojson(indent=4)) + "\\n" }}
{%- endif %}
{{- "Today: " + date_string + "\\n\\n" }}
{{- said }}
{{- "<|end|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|head|>' + message['role'] + '<|end_head|>\\n\\n'+ message['content'] | trim + '<|end|>' }}
    {%- elif 'tool_calls' in message %}
        {{- raise_exception("one call at a time!") }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|head|>assistant<|end_head|>\\n\\n' }}
{%- endif %}
""",
    "channels": """{%- macro render(spec, wanted, nullable=false) -%}
    {%- if spec.type == "array" -%}{{ "any[]" }}
    {%- elif nullable -%}{{- spec.type ~ " | null" -}}
    {%- else -%}{{ spec.type if spec.type else wanted|length }}
    {%- endif -%}
{%- endmacro -%}
{%- macro header() -%}
    {%- if effort is not defined %}{%- set effort = "medium" %}{%- endif %}
    {{- "Effort: " + effort + "\\nToday: " + strftime_now("%Y-%m-%d") + "\\n\\n" }}
    {{- render({"type": "x"}, [1], nullable=true) }}
{%- endmacro -%}
{{- "<|start|>system<|message|>" }}
{{- header() }}
{{- "<|end|>" }}
{%- if messages[0].role == "developer" or messages[0].role == "system" %}
    {%- set developer = messages[0].content %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set developer = "" %}
    {%- set rest = messages %}
{%- endif %}
{%- if developer %}
    {{- "<|start|>developer<|message|># Instructions\\n\\n" + developer + "\\n\\n<|end|>" }}
{%- endif %}
{%- set last = namespace(name=none) %}
{%- for message in rest -%}
    {%- if message.role == 'assistant' -%}
        {%- if "content" in message %}
            {%- if "<|channel|>analysis" in message.content or "<|channel|>final" in message.content %}
                {{- raise_exception("channels in a message") }}
            {%- endif %}
        {%- endif %}
        {%- if loop.last and not add_generation_prompt %}
            {%- if "thinking" in message %}
                {{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking + "<|end|>" }}
            {%- endif %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|return|>" }}
        {%- else %}
            {{- "<|start|>assistant<|channel|>final<|message|>" + message.content + "<|end|>" }}
            {%- set last.name = none %}
        {%- endif %}
    {%- elif message.role == 'user' -%}
        {{- "<|start|>user<|message|>" + message.content + "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|start|>assistant
{%- endif -%}
""",
    "phi": "{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>\n' + message['content'] + "
           "'<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == "
           "'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}"
           "{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
    "glm": "[gMASK]<sop>{% for item in messages %}{% if item['tools'] is defined %}{% for tool in item['tools'] %}{{ tool | tojson(indent=4) }}"
           "{% endfor %}{% endif %}{% if item['content'] %}<|{{ item['role'] }}|>{{ item['metadata'] }}\n{{ item['content'] }}{% endif %}"
           "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "deepseek": "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first="
                "false, is_tool=false, is_output_first=true, system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if "
                "message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}"
                "{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}"
                "{%- endif %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}{%- for message in messages %}{%- if message['role'] "
                "== 'user' %}{%- set ns.is_tool = false -%}{{'<U>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' "
                "and message['content'] is not none %}{%- if ns.is_tool %}{{'<out>' + message['content'] + '<E>'}}{%- else %}{% set content "
                "= message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}"
                "{{'<A>' + content + '<E>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if add_generation_prompt and not ns.is_tool %}{{'<A>'}}"
                "{% endif %}",
}


def say(rng):
    words = ["x", "\x7f", "caf\u00e9", " ", "\n", "\u3000", "</think>", "<|end|>", "{{ a }}", "'\"\\", "\u4e2d\u6587", "A.b"]
    return "".join(rng.choice(words) for _ in range(rng.randint(0, 5)))


def talk(rng):
    out = [{"role": "system", "content": say(rng)}] if rng.random() < 0.4 else []
    for _ in range(rng.randint(1, 3)):
        out += [{"role": "user", "content": say(rng)}, {"role": "assistant", "content": say(rng)}]
        if rng.random() < 0.2:
            out[-1][rng.choice(["thinking", "reasoning_content"])] = say(rng)
    return out


def value(rng, depth):
    """A random expression."""
    kinds = ["'a-b'", "''", "' x '", "0", "1", "-2", "7", "true", "none", "x", "m", "m.content", "m['role']", "missing", "[1, 'b', none]", "{'k': 1, 'l': 'v'}",
             "messages", "loop.index0", "ns.a", "reals", "reals[0]", "reals[-1]", "caf\u00e9".join("''")]
    if depth == 0:
        return rng.choice(kinds)
    a, b, c = (value(rng, depth - 1) for _ in range(3))
    return rng.choice([
        f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} // {b})", f"({a} % {b})", f"({a} ~ {b})", f"({a} and {b})", f"({a} or {b})", f"(not {a})",
        f"({a} == {b})", f"({a} != {b})", f"({a} < {b})", f"({a} >= {b} > {c})", f"({a} in {b})", f"({a} not in {b})", f"({a} if {b} else {c})",
        f"({a} if {b})", f"{a}[{b}]", f"({a})[{b}:{c}]", f"({a})[::-1]", f"({a})[:-1]", f"({a}).k", f"({a}).split({b})", f"({a}).strip({b})", f"({a}).strip()",
        f"({a}).startswith({b})", f"({a}).replace({b}, {c})", f"({a}).get({b})", f"({a}).find({b})", f"({a}).rstrip('\\n')", f"({a}).items()",
        f"({a})|trim", f"({a})|length", f"({a})|upper", f"({a})|lower", f"({a})|capitalize", f"({a})|join({b})", f"({a})|tojson", f"({a})|tojson(indent=2)",
        f"({a})|default({b})", f"({a})|default({b}, true)", f"({a})|first", f"({a})|last", f"({a})|list", f"({a})|string", f"({a})|int", f"({a})|reverse|list",
        f"({a})|dictsort|list|tojson", f"({a})|dictsort(true, by='value', reverse=true)|list|tojson", f"({a})|sort|tojson", f"({a})|sort(true)|tojson",
        f"({a})|sort(attribute='role')|tojson", f"({a})|unique|list|tojson", f"({a})|title", f"({a}).title()", f"({a})|tojson(ensure_ascii={b})",
        f"({a})|tojson(separators=('; ', '='))", f"({a})|tojson(sort_keys=true, indent=1)", f"({a})|map(attribute='k.0', default={b})|list|tojson",
        f"({a})|join({b}, attribute='role')",
        f"({a})|replace('a', {b})", f"({a})|indent(2)", f"({a})|map('string')|join", f"({a})|select('equalto', {b})|list|length", f"({a})|reject|list|length",
        f"({a})|selectattr('role', 'equalto', 'user')|list|length", f"({a})|map(attribute='role')|join(',')", f"(({a}) is defined)", f"(({a}) is string)",
        f"(({a}) is none)", f"(({a}) is mapping)", f"(({a}) is sequence)", f"(({a}) is iterable)", f"(({a}) is number)", f"(({a}) is integer)", f"(({a}) is boolean)",
        f"(({a}) is true)", f"(({a}) is not false)", f"(({a}) is odd)", f"(({a}) is eq {b})", f"(({a}) is in {b})", f"-{a}", f"range({a})|list|length"])


def program(rng, depth=2):
    """Random statements, whose values are written as JSON if they are lists."""
    def one(level):
        kind = rng.randint(0, 9 if level > 0 else 3)
        e = value(rng, rng.randint(0, 2))
        sign = [rng.choice(["", "", "-", "+"]) for _ in range(4)]
        if kind < 2:
            return f"{{{{{sign[0].replace('+', '')} {e} {sign[1].replace('+', '')}}}}}"
        if kind == 2:
            return rng.choice([" ", "\n", "a", "  \n", "\n  ", "{# c #}", "{#- c -#}", "\n{# c #}\n"])
        if kind == 3:
            return f"{{%{sign[0]} set {rng.choice(['x', 'y', 'ns.a'])} = {e} {sign[1]}%}}"
        body = "".join(one(level - 1) for _ in range(rng.randint(1, 3)))
        if kind < 6:
            return f"{{%{sign[0]} if {e} {sign[1]}%}}{body}{{%{sign[2]} else {sign[3]}%}}{one(level - 1)}{{% endif %}}"
        if kind < 8:
            leave = rng.choice(["", "", "{% if loop.last %}{% break %}{% endif %}", "{% if loop.first %}{% continue %}{% endif %}"])
            return (f"{{%{sign[0]} for m in {rng.choice(['messages', 'messages[1:]', '[1, 2, 3]', e])}{rng.choice(['', ' if m'])} {sign[1]}%}}{leave}{body}"
                    f"{{%{sign[2]} else %}}none{{% endfor {sign[3]}%}}")
        if kind == 8:
            return f"{{% set y %}}{body}{{% endset %}}{{{{ y }}}}"
        return f"{{% macro f(p, q=1) %}}{body}{{{{ p }}}}{{% endmacro %}}{{{{ f({e}) }}}}"
    return "{% set ns = namespace(a=1) %}{% set m = messages[0] %}{% set x = 'q' %}" + "".join(one(depth) for _ in range(rng.randint(1, 4)))


def today(form):
    return datetime.date.fromisoformat(DATE).strftime(form)


def expected(text, messages, variables):
    """The text; None: Jinja raises."""
    try:
        compiled = reference._compile_jinja_template(text)
        compiled.globals["strftime_now"] = today
        return compiled.render(**copy.deepcopy(dict(variables, messages=messages)))  # a list that is indented changes
    except (jinja2.exceptions.TemplateError, TypeError, ValueError, AttributeError, KeyError, IndexError, ZeroDivisionError, OverflowError):
        return None


def main():
    rng = random.Random(int(os.environ.get("SEED", "3")))
    cases = []
    for name, text in PROGRAMS.items():
        cases += [(name, text, talk(rng), dict(VARIABLES, add_generation_prompt=rng.random() < 0.3)) for _ in range(60)]
    for path in sorted(glob.glob(os.path.join(os.environ.get("TEMPLATES", "/nonexistent"), "*.jinja"))):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        cases += [(os.path.basename(path), text, talk(rng), dict(VARIABLES, add_generation_prompt=rng.random() < 0.3)) for _ in range(30)]
    for _ in range(COUNT):
        said = talk(rng)
        for _ in range(4):  # most random programs raise
            text = program(rng)
            if expected(text, said, VARIABLES) is not None:
                break
        cases.append(("random", text, said, VARIABLES))
    letters = "".join(map(chr, range(0x80, 0x2C00)))  # the later ones are of different ages in the tables
    letters = "".join(c for c in letters if c not in "\u0130\u03a3" and not 0x1F50 <= ord(c) < 0x1FFD and len(c.upper()) == 1)
    cases.append(("case", "{% for c in messages[0].content %}{{ c|upper ~ c|lower ~ c|capitalize ~ ('a' ~ c ~ 'b')|title }}{% endfor %}",
                  [{"role": "user", "content": letters}], VARIABLES))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([{"program": text, "messages": said, "variables": variables, "date": DATE} for _, text, said, variables in cases], file)
        file.flush()
        out = subprocess.run([f"{BUILD}/tests/model/text/test_jinja", file.name], check=True, stdout=subprocess.PIPE).stdout
    counts = {"same": 0, "refused": 0, "both": 0, "wrong": 0}
    notes = set()
    for (name, text, said, variables), got in zip(cases, json.loads(out)):
        want = expected(text, said, variables)
        error = got.get("error", "")
        if error and any(word in error for word in REFUSED) and want is not None:
            kind = "wrong" if name in PROGRAMS or name == "case" else "refused"
            if name != "random":
                notes.add(f"{name}: {error}")
        else:
            kind = "both" if want is None and error else "same" if want == got.get("text") else "wrong"
        counts[kind] += 1
        if kind == "wrong" and counts["wrong"] < 8:
            print(f"{name}: {text[:600] if name == 'random' else ''!r} of {said} is {got}, not {want!r}")
    for note in sorted(notes):
        print(note)
    print(", ".join(f"{number} {kind}" for kind, number in counts.items()))
    return int(counts["wrong"] > 0 or counts["same"] < 0.3 * len(cases) or counts["refused"] > 0.3 * len(cases))


if __name__ == "__main__":
    sys.exit(main())
