/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_svg.c: text that cannot become markup, a frame that is one element, round steps of axes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/text/svg.h"

static char text[1024];

/* What was written to `out` since it was opened. */
static const char *written(FILE *out)
{
    rewind(out);
    text[fread(text, 1, sizeof text - 1, out)] = '\0';
    fclose(out);
    return text;
}

static void escapes(void **state)
{
    (void)state;
    FILE *out = tmpfile();
    base_svg_escape(out, "a<b>&\"c\"\n\t\x01\x1f\x7f \xc3\xa4 &lt;");
    assert_string_equal(written(out), "a&lt;b&gt;&amp;&quot;c&quot;\n\t\x7f \xc3\xa4 &amp;lt;");
}

static void draws(void **state)
{
    (void)state;
    FILE *out = tmpfile();
    base_svg_open(out, 200, 100, "a \"b\" <c>", ".k{fill:red}\n");
    base_svg_text(out, 1.25, 2, "k m", "</text>");
    base_svg_rect(out, 1, 2, 30, 4, 5, "k");
    base_svg_line(out, 0, 1.5, 2, 3, "w");
    base_svg_close(out);
    assert_string_equal(
        written(out),
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"200\" height=\"100\" viewBox=\"0 0 200 100\" "
        "role=\"img\" aria-label=\"a &quot;b&quot; &lt;c&gt;\">\n"
        "<style>\n.k{fill:red}\n</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        "<text x=\"1.2\" y=\"2.0\" class=\"k m\">&lt;/text&gt;</text>\n"
        "<rect x=\"1.0\" y=\"2.0\" width=\"30.0\" height=\"4.0\" rx=\"5.0\" class=\"k\"/>\n"
        "<path class=\"w\" d=\"M0.0 1.5L2.0 3.0\"/>\n"
        "</svg>\n");
}

/* Steps are 1, 2 or 5 times a power of ten, no finer than asked for, and the next finer one would be too
 * many. */
static void ticks(void **state)
{
    (void)state;
    const double finer[] = {0.5, 0.5, 0.4}; /* 1 -> 0.5, 2 -> 1, 5 -> 2 */
    const double first[] = {1, 2, 5};
    for (double span = 1e-7; span < 1e9; span *= 1.37)
        for (int most = 1; most < 20; most++) {
            const double step = base_svg_tick(span, most);
            const double lead = step / pow(10, floor(log10(step) + 1e-9));
            int which = 0;
            while (which < 3 && fabs(lead - first[which]) > 1e-9)
                which++;
            if (which == 3 || span / step > most * (1 + 1e-9) ||
                span / (step * finer[which]) < most * (1 - 1e-9))
                fail_msg("a span of %g in at most %d parts: steps of %g", span, most, step);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(escapes), cmocka_unit_test(draws),
                                       cmocka_unit_test(ticks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
