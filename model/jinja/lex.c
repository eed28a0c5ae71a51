/* SPDX-License-Identifier: Apache-2.0 */
/* model/jinja/lex.c: a program's text to words. White space around tags goes as trim_blocks and lstrip_blocks
 * say: a line end after a tag, and spaces between a line's beginning and a tag, unless a sign (+, -) in the
 * tag says otherwise. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/grow.h"
#include "base/utf8.h"
#include "model/jinja/internal.h"

typedef struct {
    jinja_words_t *words;
    const char *text; /* [bytes], with \n as line ends */
    size_t bytes, at;
    int line, fresh; /* fresh: what was read last ended a line */
    int brackets;    /* open ones in a tag */
} lexer_t;

gyre_status_t jinja_no_memory(void)
{
    return gyre_fail_quiet(GYRE_ERR_NO_MEMORY, "no memory for a chat template");
}

static void refuse(lexer_t *lexer, const char *what)
{
    if (lexer->words->status == GYRE_OK)
        lexer->words->status = gyre_fail_quiet(GYRE_ERR_INVALID, "line %d: %s", lexer->line, what);
}

static char *room_for(lexer_t *lexer, size_t bytes)
{
    char *text = base_arena_alloc(&lexer->words->arena, bytes + 1, 1);
    if (!text)
        lexer->words->status = jinja_no_memory();
    return text;
}

static jinja_word_t *add(lexer_t *lexer, jinja_word_kind_t kind, const char *text, size_t bytes)
{
    jinja_words_t *words = lexer->words;
    char *copy = words->status == GYRE_OK ? room_for(lexer, bytes) : NULL;
    if (copy && !base_grow(&words->word, &words->room, words->count, 1, sizeof *words->word))
        words->status = jinja_no_memory();
    if (words->status != GYRE_OK)
        return NULL;
    if (bytes > 0)
        memcpy(copy, text, bytes);
    words->word[words->count] =
        (jinja_word_t){.kind = kind, .line = lexer->line, .text = copy, .bytes = bytes};
    return &words->word[words->count++];
}

static int is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int begins(const lexer_t *lexer, const char *with)
{
    const size_t n = strlen(with);
    return lexer->bytes - lexer->at >= n && memcmp(lexer->text + lexer->at, with, n) == 0;
}

static void step(lexer_t *lexer, size_t bytes)
{
    for (; bytes > 0; bytes--) {
        lexer->fresh = lexer->text[lexer->at++] == '\n';
        lexer->line += lexer->fresh;
    }
}

static void skip_blanks(lexer_t *lexer)
{
    while (lexer->at < lexer->bytes && is_blank(lexer->text[lexer->at]))
        step(lexer, 1);
}

/* Data up to a tag that `open` [2] begins; `sign` follows it. */
static void add_data(lexer_t *lexer, size_t begin, size_t end, const char *open, char sign)
{
    const size_t whole = end;
    if (sign == '-')
        while (end > begin && is_blank(lexer->text[end - 1]))
            end--;
    else if (open && open[1] != '{' && sign != '+') {
        size_t line = end;
        while (line > begin && lexer->text[line - 1] != '\n' && is_blank(lexer->text[line - 1]))
            line--;
        if (line > begin ? lexer->text[line - 1] == '\n' : lexer->fresh)
            end = line;
    }
    if (end > begin)
        add(lexer, WORD_DATA, lexer->text + begin, end - begin);
    step(lexer, whole - begin);
}

/* The end of a tag, [2] bytes after an optional sign, and the white space that goes with it. */
static void end_tag(lexer_t *lexer, char sign, int trims)
{
    step(lexer, 2u + (sign != 0));
    if (sign == '-')
        skip_blanks(lexer);
    else if (trims && sign != '+' && begins(lexer, "\n"))
        step(lexer, 1);
}

static void skip_comment(lexer_t *lexer)
{
    const char *end = memmem(lexer->text + lexer->at, lexer->bytes - lexer->at, "#}", 2);
    if (!end) {
        refuse(lexer, "a comment has no end");
        return;
    }
    const char sign = end[-1] == '-' || end[-1] == '+' ? end[-1] : 0;
    step(lexer, (size_t)(end - lexer->text) - lexer->at - (sign != 0));
    end_tag(lexer, sign, 1);
}

/* ---- words of a tag ------------------------------------------------------------------------------------ */

static size_t put_utf8(char *out, uint32_t c)
{
    if (c < 0x80)
        return (void)(out[0] = (char)c), 1;
    const size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(lead[n] | c);
    return n;
}

/* \xhh, \uhhhh, \Uhhhhhhhh at `at`, after the backslash; 0: it is not one. */
static size_t read_hex(const lexer_t *lexer, size_t at, uint32_t *c)
{
    const char kind = lexer->text[at];
    const size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    char word[9] = "";
    if (digits == 0 || lexer->bytes - at <= digits)
        return 0;
    memcpy(word, lexer->text + at + 1, digits);
    char *end;
    *c = (uint32_t)strtoul(word, &end, 16);
    return end == word + digits && *word != '-' && *word != '+' && !is_blank(*word) &&
                   (*c < 0xD800 || (*c >= 0xE000 && *c <= 0x10FFFF))
               ? digits + 1
               : 0;
}

static void read_text(lexer_t *lexer)
{
    static const char plain[] = "n\nt\tr\r\\\\'\'\"\"a\ab\bf\fv\v";
    const char quote = lexer->text[lexer->at];
    size_t at = lexer->at + 1, n = 0;
    char *out = room_for(lexer, lexer->bytes - lexer->at);
    for (; out && at < lexer->bytes && lexer->text[at] != quote; at++) {
        if (lexer->text[at] != '\\' || at + 1 == lexer->bytes) {
            out[n++] = lexer->text[at];
            continue;
        }
        const char c = lexer->text[++at];
        const char *known = NULL;
        for (size_t i = 0; plain[i]; i += 2)
            if (plain[i] == c)
                known = &plain[i + 1];
        uint32_t letter = 0;
        const size_t hex = read_hex(lexer, at, &letter);
        if (known)
            out[n++] = *known;
        else if (hex) {
            n += put_utf8(out + n, letter);
            at += hex - 1;
        } else if ((c >= '0' && c <= '7') || c == 'x' || c == 'u' || c == 'U' || c == 'N' || c == '\n') {
            refuse(lexer, "a text has an escape that is not supported: write the character");
            return;
        } else {
            out[n++] = '\\';
            out[n++] = c;
        }
    }
    if (at >= lexer->bytes)
        refuse(lexer, "a text has no end");
    else if (out) {
        add(lexer, WORD_TEXT, out, n);
        step(lexer, at + 1 - lexer->at);
    }
}

static void read_number(lexer_t *lexer)
{
    int64_t number = 0;
    size_t n = 0;
    for (char c; (c = lexer->at + n < lexer->bytes ? lexer->text[lexer->at + n] : 0) >= '0' && c <= '9'; n++)
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, c - '0', &number))
            refuse(lexer, "a number is above 2^63");
    if (lexer->at + n + 1 < lexer->bytes && lexer->text[lexer->at + n] == '.' &&
        lexer->text[lexer->at + n + 1] >= '0' && lexer->text[lexer->at + n + 1] <= '9')
        refuse(lexer, "numbers with a point are not supported");
    jinja_word_t *word = add(lexer, WORD_NUMBER, lexer->text + lexer->at, n);
    if (word)
        word->number = number;
    step(lexer, n);
}

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static void read_word(lexer_t *lexer)
{
    static const char *const signs[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*",
                                        "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                        "]",  "{",  "}",  ",",  ":",  ".",  "|", ";"};
    const char c = lexer->text[lexer->at];
    size_t n = 0;
    if (c == '"' || c == '\'') {
        read_text(lexer);
    } else if (c >= '0' && c <= '9') {
        read_number(lexer);
    } else if (is_letter(c)) {
        while (lexer->at + n < lexer->bytes &&
               (is_letter(lexer->text[lexer->at + n]) ||
                (lexer->text[lexer->at + n] >= '0' && lexer->text[lexer->at + n] <= '9')))
            n++;
        add(lexer, WORD_NAME, lexer->text + lexer->at, n);
        step(lexer, n);
    } else {
        for (size_t i = 0; n == 0 && i < sizeof signs / sizeof *signs; i++)
            n = begins(lexer, signs[i]) ? strlen(signs[i]) : 0;
        if (n == 0) {
            refuse(lexer, "a character of a tag is not understood");
            return;
        }
        lexer->brackets += strchr("([{", c) != NULL;
        lexer->brackets -= strchr(")]}", c) != NULL;
        add(lexer, WORD_SIGN, lexer->text + lexer->at, n);
        step(lexer, n);
    }
}

/* Words up to the tag's end, `close` [2]. */
static void read_tag(lexer_t *lexer, const char *close, jinja_word_kind_t end)
{
    lexer->brackets = 0;
    while (lexer->words->status == GYRE_OK) {
        skip_blanks(lexer);
        const char c = lexer->at < lexer->bytes ? lexer->text[lexer->at] : 0;
        const size_t sign = (c == '-' || c == '+') && lexer->at + 1 < lexer->bytes;
        const int here = lexer->brackets <= 0 && lexer->bytes - lexer->at >= sign + 2 &&
                         memcmp(lexer->text + lexer->at + sign, close, 2) == 0;
        if (c == 0) {
            refuse(lexer, end == WORD_BLOCK_END ? "a {% has no %}" : "a {{ has no }}");
        } else if (here) {
            add(lexer, end, close, 2);
            end_tag(lexer, sign ? c : 0, end == WORD_BLOCK_END);
            return;
        } else
            read_word(lexer);
    }
}

static void lex(lexer_t *lexer)
{
    while (lexer->words->status == GYRE_OK && lexer->at < lexer->bytes) {
        const size_t begin = lexer->at;
        size_t end = begin;
        while (end < lexer->bytes &&
               !(lexer->text[end] == '{' && end + 1 < lexer->bytes && strchr("{%#", lexer->text[end + 1])))
            end++;
        if (end == lexer->bytes) {
            add_data(lexer, begin, end, NULL, 0);
            return;
        }
        const char *open = lexer->text + end;
        const char sign = end + 2 < lexer->bytes && (open[2] == '-' || open[2] == '+') ? open[2] : 0;
        add_data(lexer, begin, end, open, sign);
        if (open[1] == '#') {
            step(lexer, 2);
            skip_comment(lexer);
            continue;
        }
        const int block = open[1] == '%';
        add(lexer, block ? WORD_BLOCK : WORD_VARIABLE, open, 2);
        step(lexer, 2u + (sign != 0));
        read_tag(lexer, block ? "%}" : "}}", block ? WORD_BLOCK_END : WORD_VARIABLE_END);
    }
}

void jinja_lex(jinja_words_t *words, const char *text, size_t bytes)
{
    lexer_t lexer = {.words = words, .line = 1, .fresh = 1};
    char *plain = room_for(&lexer, bytes);
    size_t n = 0;
    for (size_t i = 0; plain && i < bytes; i++) {
        const int line = text[i] == '\r';
        i += (size_t)(line && i + 1 < bytes && text[i + 1] == '\n');
        plain[n++] = line ? '\n' : text[i];
    }
    n -= (size_t)(plain && n > 0 && plain[n - 1] == '\n');
    lexer.text = plain;
    lexer.bytes = plain ? n : 0;
    if (base_utf8_span((const unsigned char *)plain, lexer.bytes) < lexer.bytes ||
        (plain && memchr(plain, 0, n)))
        refuse(&lexer, "it is not text in UTF-8");
    lex(&lexer);
    add(&lexer, WORD_END, "", 0);
}
