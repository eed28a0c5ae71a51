/* SPDX-License-Identifier: Apache-2.0 */
/* model/chat/templates.c: what stands before and after messages, by template, and the Jinja
 * programs that write the same. */
#include "model/chat/templates.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define CHATML                                                                           \
    .token = {"<|im_start|>", "<|im_end|>"}, .begin = "",                                \
    .before = {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"}, \
    .after = {"<|im_end|>\n", "<|im_end|>\n", "<|im_end|>\n"}

const chat_template_t chat_templates[] = {
    {.name = "chatml", CHATML},
    {.name = "qwen2", CHATML, .system = "You are a helpful assistant."},
    {.name = "qwen2.5",
     CHATML,
     .system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    {.name = "smollm2",
     CHATML,
     .system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
    {.name = "llama3",
     .token = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     .begin = "<|begin_of_text|>",
     .before = {"<|start_header_id|>system<|end_header_id|>\n\n",
                "<|start_header_id|>user<|end_header_id|>\n\n",
                "<|start_header_id|>assistant<|end_header_id|>\n\n"},
     .after = {"<|eot_id|>", "<|eot_id|>", "<|eot_id|>"},
     .trim = 1},
    /* the date is a constant of the program */
    {.name = "llama3.1",
     .token = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     .begin = "<|begin_of_text|>",
     .before = {"<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday "
                "Date: 26 Jul 2024\n\n",
                "<|start_header_id|>user<|end_header_id|>\n\n",
                "<|start_header_id|>assistant<|end_header_id|>\n\n"},
     .after = {"<|eot_id|>", "<|eot_id|>", "<|eot_id|>"},
     .system = "",
     .trim = 1},
    {.name = "qwen3",
     .token = {"<|im_start|>", "<|im_end|>", "<think>", "</think>"},
     .begin = "",
     .before = {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"},
     .after = {"<|im_end|>\n", "<|im_end|>\n", "<|im_end|>\n"},
     .thought = "</think>",
     .last = "<think>\n\n</think>\n\n"},
    {.name = "gemma",
     .token = {"<bos>", "<start_of_turn>", "<end_of_turn>"},
     .begin = "<bos>",
     .before = {NULL, "<start_of_turn>user\n", "<start_of_turn>model\n"},
     .after = {NULL, "<end_of_turn>\n", "<end_of_turn>\n"},
     .trim = 1,
     .alternate = 1},
    {.name = "gemma3",
     .token = {"<bos>", "<start_of_turn>", "<end_of_turn>"},
     .begin = "<bos>",
     .before = {"<start_of_turn>user\n", "<start_of_turn>user\n", "<start_of_turn>model\n"},
     .after = {"\n\n", "<end_of_turn>\n", "<end_of_turn>\n"},
     .trim = 1,
     .alternate = 1,
     .joined = 1},
    {.name = "deepseek",
     .token = {"<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"},
     .begin = "<｜begin▁of▁sentence｜>",
     .before = {"", "<｜User｜>", "<｜Assistant｜>"},
     .after = {"", "", "<｜end▁of▁sentence｜>"},
     .thought = "</think>"},
    {.name = "mistral",
     .token = {"<s>", "</s>"},
     .begin = "<s>",
     .before = {NULL, "[INST] ", ""},
     .after = {NULL, " [/INST]", "</s>"},
     .alternate = 1},
    {.name = "zephyr",
     .token = {"</s>"},
     .begin = "",
     .before = {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"},
     .after = {"</s>\n", "</s>\n", "</s>\n"}},
    /* Gyre's own, for tokenizers that have no tokens for a chat: lines, and the end of a text after an
     * answer. */
    {.name = "plain",
     .token = {CHAT_EOT},
     .begin = "",
     .before = {"", "User:\n", "Assistant:\n"},
     .after = {"\n\n", "\n\n", CHAT_EOT "\n\n"}},
};
const size_t chat_templates_count = sizeof chat_templates / sizeof *chat_templates;

/* The XXH3 (64 bits, seed 0) of programs' texts, whose "\n" are line ends and whose last white space is cut.
 * Published with: OpenHermes and many others (chatml), Qwen3-Instruct-2507 (that, too), Qwen2, Qwen2.5,
 * SmolLM2, Llama 3, Llama 3.1, Qwen3, Gemma and Gemma 2, Gemma 3, DeepSeek-R1 and its distilled models,
 * Mistral 7B and Mixtral 8x7B Instruct, Zephyr and TinyLlama. */
static const struct {
    uint64_t hash;
    const char *name;
} known[] = {
    {0x816f6e678caa3917, "chatml"},   {0xa04f41d813a07b13, "chatml"},   {0xda206a9e46a4ac01, "chatml"},
    {0xd5d943bd0bd9082f, "qwen2"},    {0x99ab995e9629dacd, "smollm2"},  {0xeefa073c5bd970eb, "llama3"},
    {0x9799ad6e2dea0594, "llama3"},   {0xb97891b7adc1beb8, "llama3"},   {0xa5d004210ebce758, "mistral"},
    {0x1db34e9fc60441d8, "zephyr"},   {0xa04c0d765923822c, "chatml"},   {0xf9a29021c9d093ad, "qwen2.5"},
    {0xda8ae4616203881a, "llama3.1"}, {0x4372a702009a6e39, "qwen3"},    {0x2c2e86beabccd2a4, "gemma"},
    {0xd9c620dcaf86f38d, "gemma3"},   {0x7b2b31b443f0df1c, "deepseek"}, {0xf48e53fd1793f416, "deepseek"},
};

const chat_template_t *chat_template_of(const char *text)
{
    char *plain = malloc(strlen(text) + 1);
    size_t n = 0;
    for (const char *at = text; plain && *at; at++) {
        int escaped = at[0] == '\\' && at[1] == 'n';
        plain[n++] = escaped ? '\n' : *at;
        at += escaped;
    }
    while (n > 0 && strchr(" \t\r\n", plain[n - 1]))
        n--;
    const uint64_t hash = plain ? base_hash64(plain, n, 0) : 0;
    free(plain);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        for (size_t t = 0; known[i].hash == hash && t < chat_templates_count; t++)
            if (strcmp(chat_templates[t].name, known[i].name) == 0)
                return &chat_templates[t];
    return NULL;
}
