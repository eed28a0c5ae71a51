/* SPDX-License-Identifier: Apache-2.0 */
/* model/chat/templates.c: programs that write what those of published models write, for tokenizers whose
 * folder has none. */
#include "model/chat/templates.h"

#define PROMPT(text) "{% if add_generation_prompt %}{{ '" text "' }}{% endif %}"
#define TURNS                                                                                         \
    "{% for m in turns %}{% if m.role == 'system' or (m.role == 'user') != (loop.index0 % 2 == 0) %}" \
    "{{ raise_exception('user and assistant take turns, and the user begins') }}{% endif %}{% endfor %}"

#define CHATML_TOKENS "<|im_start|>", "<|im_end|>"
#define CHATML                                                                                   \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}" \
    "{% endfor %}" PROMPT("<|im_start|>assistant\\n")
#define CHATML_WITH(system)                                                 \
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\\n" system \
    "<|im_end|>\\n' }}{% endif %}" CHATML

#define LLAMA3_TOKENS "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"
#define LLAMA3_TURNS                                                                                         \
    "{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content|trim " \
    "+ '<|eot_id|>' }}{% endfor %}" PROMPT("<|start_header_id|>assistant<|end_header_id|>\\n\\n")

#define GEMMA_TOKENS "<bos>", "<start_of_turn>", "<end_of_turn>"
#define GEMMA_TURNS                                                                                         \
    TURNS "{{ '<bos>' }}{% for m in turns %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else " \
          "m.role) + '\\n' + (before if loop.first else '') + m.content|trim + '<end_of_turn>\\n' }}"       \
          "{% endfor %}" PROMPT("<start_of_turn>model\\n")

const chat_template_t chat_templates[] = {
    {"chatml", CHATML, {CHATML_TOKENS}},
    {"qwen2", CHATML_WITH("You are a helpful assistant."), {CHATML_TOKENS}},
    {"qwen2.5",
     CHATML_WITH("You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
     {CHATML_TOKENS}},
    {"smollm2",
     CHATML_WITH("You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
     {CHATML_TOKENS}},
    {"llama3", "{{ '<|begin_of_text|>' }}" LLAMA3_TURNS, {LLAMA3_TOKENS}},
    /* a system's message always; the days are constants */
    {"llama3.1",
     "{% set system = '' %}{% if messages[0].role == 'system' %}{% set system = messages[0].content|trim %}"
     "{% set messages = messages[1:] %}{% endif %}{{ '<|begin_of_text|><|start_header_id|>system"
     "<|end_header_id|>\\n\\nCutting Knowledge Date: December 2023\\nToday Date: 26 Jul 2024\\n\\n' + system "
     "+ "
     "'<|eot_id|>' }}" LLAMA3_TURNS,
     {LLAMA3_TOKENS}},
    /* thoughts: of answers after the last question only */
    {"qwen3",
     "{% set last = namespace(at=messages|length) %}{% for m in messages %}{% if m.role == 'user' %}"
     "{% set last.at = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}"
     "{% set content = m.content %}{% set thought = '' %}{% if m.role == 'assistant' %}"
     "{% if m.reasoning_content is string %}{% set thought = m.reasoning_content %}"
     "{% elif '</think>' in content %}"
     "{% set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
     "{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
     "{% if loop.index0 > last.at and (loop.last or thought) %}"
     "{% set content = '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') %}"
     "{% endif %}{% endif %}{{ '<|im_start|>' + m.role + '\\n' + content + '<|im_end|>\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
     "{% if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}"
     "{% endif %}{% endif %}",
     {CHATML_TOKENS, "<think>", "</think>"}},
    {"gemma", "{% set turns = messages %}{% set before = '' %}" GEMMA_TURNS, {GEMMA_TOKENS}},
    {"gemma3",
     "{% set turns = messages %}{% set before = '' %}{% if messages[0].role == 'system' %}"
     "{% set turns = messages[1:] %}{% set before = messages[0].content + '\\n\\n' %}{% endif %}" GEMMA_TURNS,
     {GEMMA_TOKENS}},
    {"deepseek",
     "{{ '<｜begin▁of▁sentence｜>' }}{% for m in messages %}{% if m.role == 'user' %}"
     "{{ '<｜User｜>' + m.content }}{% elif m.role == 'assistant' %}{{ '<｜Assistant｜>' + "
     "m.content.split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}{% else %}{{ m.content }}{% endif %}"
     "{% endfor %}" PROMPT("<｜Assistant｜>"),
     {"<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"}},
    {"mistral",
     "{% set turns = messages %}" TURNS "{{ '<s>' }}{% for m in turns %}{% if m.role == 'user' %}"
     "{{ '[INST] ' + m.content + ' [/INST]' }}{% else %}{{ m.content + '</s>' }}{% endif %}{% endfor %}",
     {"<s>", "</s>"}},
    {"zephyr",
     "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '</s>\\n' }}{% endfor %}" PROMPT(
         "<|assistant|>\\n"),
     {"</s>"}},
    /* Gyre's own, for tokenizers that have no tokens for a chat: lines, and the end of a text after an
     * answer. */
    {"plain",
     "{% for m in messages %}{{ 'User:\\n' if m.role == 'user' else 'Assistant:\\n' if m.role == 'assistant' "
     "else '' }}{{ m.content + (end_of_text if m.role == 'assistant' else '') + '\\n\\n' }}{% endfor "
     "%}" PROMPT("Assistant:\\n"),
     {CHAT_EOT}},
};
const size_t chat_templates_count = sizeof chat_templates / sizeof *chat_templates;
