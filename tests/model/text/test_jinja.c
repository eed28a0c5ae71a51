/* SPDX-License-Identifier: Apache-2.0 */
/* Jinja: what programs write, where each byte comes from, and what is refused; jinja_compare.py compares with
 * Jinja's own interpreter. With a FILE of cases as its argument it runs these and prints what comes out:
 * a list of objects with "program", "variables", "messages" and "date". */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/text/json.h"
#include "model/jinja/jinja.h"

static gyre_status_t run_one(const char *program, const char *messages, const char *date, jinja_output_t *out)
{
    jinja_program_t *compiled = NULL;
    json_error_t error;
    int lacks;
    json_t *variables = json_loads("{\"bos\": \"<s>\", \"nothing\": null, \"yes\": true}", 0, NULL),
           *list = base_json_text(messages, strlen(messages), &error, &lacks),
           *tools = json_pack("[{s:i}]", "t", 1);
    assert_non_null(variables);
    assert_non_null(list);
    gyre_status_t status = jinja_compile(program, strlen(program), &compiled);
    if (status == GYRE_OK)
        status = jinja_run(compiled, &(jinja_input_t){variables, list, tools, date}, out);
    jinja_destroy(compiled);
    json_decref(tools);
    json_decref(variables);
    json_decref(list);
    return status;
}

#define TALK                                                                                                 \
    "[{\"role\": \"user\", \"content\": \" caf\\u00e9 \"}, {\"role\": \"assistant\", \"content\": \"a-b\", " \
    "\"n\": 7, \"share\": 0.5, \"reals\": [1e16, 9e15, 1e-5, 1e-4, -0.0, 0.1, 2.0], "                        \
    "\"big\": 99999999999999999999, \"call\": {\"role\": \"xy\"}, \"tool_calls\": {\"ab\": \"xy\"}}]"

static void writes(void **state)
{
    (void)state;
    static const struct {
        const char *program, *want;
    } cases[] = {
        {"", ""},
        {"a\n", "a"},
        {"{{ bos + 'x' ~ 1 }}", "<s>x1"},
        {"{{ none }}{{ true }}{{ missing }}", "NoneTrue"},
        {"a\n  {% if yes %}\nb\n  {% endif %}\nc\n\n", "a\nb\nc\n"},
        {"a \n {%- if yes -%} \n b {%+ endif +%}\nc", "ab \nc"},
        {"{#- c -#} x {# c #}\ny", "x y"},
        {"{% for m in messages %}{{ loop.index }}{{ m.role[:2] }}{{ ',' if not loop.last }}{% endfor %}",
         "1us,2as"},
        {"{% for i in range(5) if i is odd %}{{ i }}{% else %}none{% endfor %}", "13"},
        {"{% for i in [] %}{% else %}none{% endfor %}", "none"},
        {"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i > 2 %}{% break %}{% endif %}{{ i "
         "}}{% endfor %}",
         "02"},
        {"{% set ns = namespace(a=1) %}{% set b = 1 %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% set "
         "b = 9 %}"
         "{% endfor %}{{ ns.a }}{{ b }}",
         "41"},
        {"{% set a, b = 1, 'x' %}{{ b }}{% set c %}q{{ a }}{% endset %}{{ c|length }}", "x2"},
        {"{% macro f(a, b='B') %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f('x', b=2) }}", "1Bx2"},
        {"{{ messages[-1].content.split('-')[1] }}{{ messages[0].content|trim|length }}", "b4"},
        {"{{ messages[1:][0].n // 2 }}{{ -7 // 2 }}{{ -7 % 3 }}", "3-42"},
        {"{{ messages|map(attribute='role')|join('+') }}", "user+assistant"},
        {"{{ (messages|selectattr('role', 'equalto', 'user')|list)|length }}", "1"},
        {"{{ {'a': [1, none, 'x\"']}|tojson }}", "{\"a\": [1, null, \"x\\\"\"]}"},
        {"{{ 'x' is defined and y is not defined and 1 in [1] and 'b' not in 'ac' }}", "True"},
        {"{{ messages[1].get('n') }}{{ messages[1].get('q', 2) }}{{ messages[1].q is none }}", "72False"},
        {"{{ 'a' 'b'|upper }}{{ ' a b '.split() | join }}{{ 'abc'.replace('b', '') }}{{ 'é'[0] }}",
         "ABabacé"},
        {"{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"},
        {"{{ messages[5].x if messages|length > 5 else 'short' }}", "short"},
        {"{{ 3 if nothing }}{{ nothing or 'd' }}{{ x|default('e') }}{{ ''|default('f', true) }}", "def"},
        {"{{ \"\\u00e9\\n\" }}", "é\n"},
        {"{{ messages[-1].share }}{{ messages[1].reals | tojson }}",
         "0.5[1e+16, 9000000000000000.0, 1e-05, 0.0001, -0.0, 0.1, 2.0]"},
        {"{% set r = messages[1].reals %}{{ r[5] is number and r[5] is float and r[6] is not integer }}"
         "{{ r[6] == 2 and 2 in r and r[5] < 1 and not r[4] }}"
         "{{ r[6]|int }}{{ messages[1].big is defined }}",
         "TrueTrue2True"},
        {"{{ {'b': 1, 'A': 2, 'a': 0} | dictsort | tojson }}{{ {'b': 1, 'A': 2} | dictsort(true, 'value', "
         "reverse=true) | map('first') | join }}",
         "[[\"A\", 2], [\"a\", 0], [\"b\", 1]]Ab"},
        {"{{ ['b', 'A', 'a'] | sort | join }}{{ [2, 3, 1] | sort(reverse=true) | join }}"
         "{{ messages | sort(attribute='role') | map(attribute='content') | first }}",
         "Aab321a-b"},
        {"{{ ['b', 'B', 'a', 'b'] | unique | join }}{{ [1, true, 'x', none, 'x'] | unique | list | length }}"
         "{{ messages | unique(attribute='role') | list | length }}",
         "ba32"},
        {"{{ 'caf\u00e9 \u0250' | upper }}{{ 'CAF\u00c9' | lower }}{{ '\u01c6\u00c9' | capitalize }}"
         "{{ '\u00e9\u00c9\u3000\u00e9' | title }}{{ {'\u00c9': 1, 'a': 2, '\u00e8': 3} | dictsort | "
         "map('first') | "
         "join }}",
         "CAF\u00c9 \u2c6fcaf\u00e9\u01c5\u00e9\u00c9\u00e9\u3000\u00c9a\u00e8\u00c9"},
        {"{{ \"it's a-b (CD\" | title }},{{ \"it's a-b (CD\".title() }}", "It's A-B (Cd,It'S A-B (Cd"},
        {"{{ [{'f': {'g': ['x', 'y']}}] | map(attribute='f.g.1') | join }}{{ [{'f': {'g': 1}}, {'f': {}}] | "
         "map(attribute='f.g', default=7) | join('-') }}{{ [{'items': 2}] | join('', attribute='items') }}",
         "y1-72"},
        {"{{ [{'f': {'g': 1}}, {'f': {}}] | selectattr('f.g', 'defined') | list | length }}", "1"},
        {"{{ {'b': [1, 2], 'a': 'é\u2028\U0001f600'} | tojson(ensure_ascii=true, separators=(',', ':'), "
         "sort_keys=true) }}",
         "{\"a\":\"\\u00e9\\u2028\\ud83d\\ude00\",\"b\":[1,2]}"},
        {"{{ '\x7f' | tojson }}{{ '\x7f' | tojson(ensure_ascii=true) }}", "\"\x7f\"\"\\u007f\""},
        {"{{ {'b': [1]} | tojson(indent=1, separators=(';', '=')) }}", "{\n \"b\"=[\n  1\n ]\n}"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        jinja_output_t out = {0};
        if (run_one(cases[i].program, TALK, NULL, &out) != GYRE_OK)
            fail_msg("%s: %s", cases[i].program, gyre_last_error());
        if (out.bytes != strlen(cases[i].want) ||
            (out.bytes && memcmp(out.text, cases[i].want, out.bytes) != 0))
            fail_msg("%s: '%.*s'", cases[i].program, (int)out.bytes, out.text ? out.text : "");
        jinja_output_free(&out);
    }
}

/* Digits say from which message a byte is, and c that it is from calls. */
static void origins(void **state)
{
    (void)state;
    static const struct {
        const char *program, *want;
    } cases[] = {{"{{ bos + messages[0].role + messages[1].content }}", "0000000222"},
                 {"{{ messages[1].content.split('-')|join('+') }}", "202"},
                 {"{{ (messages[0].content|trim)[1:] ~ messages[1].content|replace('-', '!') }}", "1111202"},
                 {"{% set x %}<{{ messages[1].content|upper }}>{% endset %}{{ x[2:] }}", "220"},
                 {"{{ ('\u0250' + messages[1].content)|upper }}", "000222"},
                 {"{{ ['a', messages[1].content]|tojson }}", "000000022200"},
                 {"{% macro f(a) %}({{ a }}){% endmacro %}{{ f(messages[1].content) }}", "02220"},
                 /* keys and a "role" within a message are the message's, its own role is not */
                 {"{{ messages[1].call | tojson }}", "00222200002200"},
                 {"{{ messages[1].tool_calls | tojson }}", "00cc0000cc00"},
                 {"{{ tools | tojson }}", "0003000000"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        jinja_output_t out = {0};
        char got[64] = "";
        assert_int_equal(run_one(cases[i].program, TALK, NULL, &out), GYRE_OK);
        for (size_t k = 0; k < out.bytes && k < 63; k++)
            got[k] = (char)(out.from[k] == (JINJA_CALL | 2) ? 'c' : '0' + out.from[k]);
        assert_string_equal(got, cases[i].want);
        jinja_output_free(&out);
    }
    jinja_output_t out = {0};
    /* whose loop wrote it */
    static const char looped[] =
        "a{% for m in messages[::-1] %}{% for k in [1] %}b{% endfor %}{{ m.n }}{% for m in messages %}c"
        "{% endfor %}d{% endfor %}e";
    assert_int_equal(run_one(looped, TALK, NULL, &out), GYRE_OK);
    static const uint32_t turn[] = {0, 2, 2, 1, 2, 2, 1, 1, 2, 1, 0};
    assert_int_equal(out.bytes, sizeof turn / sizeof *turn);
    assert_memory_equal(out.turn, turn, sizeof turn);
    jinja_output_free(&out);
    assert_int_equal(run_one("a{% generation %}{{ 'b' }}{% endgeneration %}c", TALK, NULL, &out), GYRE_OK);
    assert_memory_equal(out.generated, "\0\1\0", 3);
    jinja_output_free(&out);
}

/* A program that does so 10,000 times with texts of 1 MiB. */
#define LONG(what)                                                                                       \
    {                                                                                                    \
        "{% set s = namespace(t='0123456789abcdef', u='0123456789abcdef') %}{% for i in range(16) %}"    \
        "{% set s.t = s.t + s.t %}{% set s.u = s.u + s.u %}{% endfor %}{% for i in range(10000) %}" what \
        "{% endfor %}",                                                                                  \
            "more than 10000000 steps"                                                                   \
    }

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *program, *word;
    } cases[] = {
        {"a\n{% include 'x' %}", "line 2: the statement is not supported: include"},
        {"{{ 1|wordwrap }}", "line 1: the filter wordwrap is not supported"},
        {"{{ 1|dictsort }}", "the filter dictsort on a number"},
        {"{{ '\u00df' | upper }}", "the upper case of U+00DF is not supported"},
        {"{{ '\u03a3' | lower }}", "the lower case of U+03A3 is not supported"},
        {"{{ 'a\u00e9'.title() }}", "title() of U+00E9 is not supported: it takes ASCII alone"},
        {"{{ [1, 'a'] | sort }}", "a text < a number is not supported"},
        {"{{ range(100000) | sort(reverse=true) | first }}{{ range(100000) | unique | list | length }}",
         "more than 10000000 steps"},
        {"{{ 1 is callable }}", "the test callable is not supported"},
        {"{{ 1 / 2 }}", "the operator / is not supported"},
        {"{{ 1.5 }}", "numbers with a point"},
        {"{{ messages[-1].share + 1 }}", "a number with a point + a number is not supported"},
        {"{{ messages[-1].big }}", "a number beyond 2^63 is taken for a text"},
        {"{{ 'a'.splitlines() }}", "the method splitlines of a text is not supported"},
        {"{{ cycler(1) }}", "'cycler' is undefined, or not supported"},
        {"{{ messages[0].x.y }}", "'x' is undefined"},
        {"{{ 'a' + missing }}", "'missing' is undefined"},
        {"{{ 'a' + none }}", "a text + none"},
        {"{{ messages }}", "a list is taken for a text"},
        {"{{ raise_exception('no ' + 'way') }}", "the template refuses the conversation: no way"},
        {"{{ strftime_now('%Y') }}", "--date"},
        {"{% if yes %}", "'the end' stands where"},
        {"{% if yes %}{% endfor %}", "line 1: the statement is not supported: endfor"},
        {"{{ 'a }}", "a text has no end"},
        {"{{ (1] }}", "stands where ) was expected"},
        {"{{ 1 ", "a {{ has no }}"},
        {"{# x", "a comment has no end"},
        {"{% break %}", "it is not in a loop"},
        {"{{ 9223372036854775807 + 1 }}", "beyond 2^63"},
        {"{{ range(1000000) }}", "more than 100,000"},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply"},
        {"{% set s = namespace(t='0123456789abcdef') %}{% for i in range(18) %}{% set s.t = s.t + s.t %}"
         "{% endfor %}{% for i in range(100) %}{{ s.t }}{% endfor %}",
         "more than 256 MiB for this conversation"},
        {"{{ [[1]] | tojson(indent=4611686018427387904) }}", "an indent of up to 64"},
        {"{% set s = namespace(a=[], b=[]) %}{% for i in range(100000) %}{% set s.a = [s.a] %}"
         "{% set s.b = [s.b] %}{% endfor %}{{ s.a == s.b }}",
         "nested more than 100 deep"},
        {"{% set s = namespace(a=[], b=[]) %}{% for i in range(60) %}{% set s.a = [s.a, s.a] %}"
         "{% set s.b = [s.b, s.b] %}{% endfor %}{{ s.a == s.b }}",
         "more than 10000000 steps"},
        LONG("{{ s.t | length }}{{ s.t.find('z') }}"),
        LONG("{{ s.t[1:2] }}"),
        LONG("{{ s.t[-1] }}"),
        LONG("{% if s.t == s.u %}{% endif %}"),
        LONG("{% if s.t < s.u %}{% endif %}"),
        LONG("{% if [s.t] == [s.u] %}{% endif %}"),
        LONG("{% if 'z' in s.t %}{% endif %}"),
        LONG("{% if s.t.startswith([s.u, s.t]) %}{% endif %}"),
        {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "takes more than"},
        {"{% set ns = namespace(a='0123456789') %}{% for i in range(40) %}{% set ns.a = ns.a + ns.a %}"
         "{% endfor %}",
         "MiB"},
        {"\xff", "UTF-8"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        jinja_output_t out = {0};
        assert_int_equal(run_one(cases[i].program, TALK, NULL, &out), GYRE_ERR_INVALID);
        if (!strstr(gyre_last_error(), cases[i].word))
            fail_msg("'%s' does not speak of '%s'", gyre_last_error(), cases[i].word);
    }
    char deep[2001];
    memset(deep, '(', 1000);
    memset(deep + 1000, ')', 998);
    memcpy(deep, "{{", 2);
    memcpy(deep + 1998, "}}", 3);
    jinja_output_t out = {0};
    assert_int_equal(run_one(deep, TALK, NULL, &out), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "nested too deeply"));
    assert_int_equal(run_one("{{ strftime_now('%d %b %Y, %A') }}", TALK, "2026-11-05", &out), GYRE_OK);
    assert_int_equal(out.bytes, strlen("05 Nov 2026, Thursday"));
    assert_memory_equal(out.text, "05 Nov 2026, Thursday", out.bytes);
    jinja_output_free(&out);
}

static json_t *answer(const json_t *item)
{
    jinja_program_t *program = NULL;
    jinja_output_t out = {0};
    const json_t *text = json_object_get(item, "program");
    gyre_status_t status = jinja_compile(json_string_value(text), json_string_length(text), &program);
    if (status == GYRE_OK)
        status =
            jinja_run(program,
                      &(jinja_input_t){json_object_get(item, "variables"), json_object_get(item, "messages"),
                                       NULL, json_string_value(json_object_get(item, "date"))},
                      &out);
    jinja_destroy(program);
    json_t *made = status == GYRE_OK ? json_pack("{s:s%}", "text", out.text ? out.text : "", out.bytes)
                                     : json_pack("{s:s}", "error", gyre_last_error());
    jinja_output_free(&out);
    return made;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(writes), cmocka_unit_test(origins),
                                       cmocka_unit_test(refusals)};
    if (argc < 2)
        return cmocka_run_group_tests(tests, NULL, NULL);
    json_t *cases = json_load_file(argv[1], 0, NULL), *answers = json_array();
    for (size_t i = 0; i < json_array_size(cases); i++)
        json_array_append_new(answers, answer(json_array_get(cases, i)));
    json_dumpf(answers, stdout, 0);
    json_decref(cases);
    json_decref(answers);
    return 0;
}
