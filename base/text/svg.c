/* SPDX-License-Identifier: Apache-2.0 */
/* base/text/svg.c: pieces of SVG files. */
#include "base/text/svg.h"

#include <math.h>

void base_svg_escape(FILE *out, const char *text)
{
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '&')
            fputs("&amp;", out);
        else if (c == '<')
            fputs("&lt;", out);
        else if (c == '>')
            fputs("&gt;", out);
        else if (c == '"')
            fputs("&quot;", out);
        else if (c >= 0x20 || c == '\n' || c == '\t')
            fputc(c, out);
    }
}

void base_svg_open(FILE *out, double width, double height, const char *title, const char *style)
{
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
        "role=\"img\" aria-label=\"",
        width, height, width, height);
    base_svg_escape(out, title);
    fprintf(out, "\">\n<style>\n%s</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", style);
}

void base_svg_close(FILE *out)
{
    fputs("</svg>\n", out);
}

void base_svg_text(FILE *out, double x, double y, const char *class, const char *words)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    base_svg_escape(out, words);
    fputs("</text>\n", out);
}

void base_svg_rect(FILE *out, double x, double y, double width, double height, double radius,
                   const char *class)
{
    fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"%.1f\" class=\"%s\"/>\n", x,
            y, width, height, radius, class);
}

void base_svg_line(FILE *out, double x1, double y1, double x2, double y2, const char *class)
{
    fprintf(out, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", class, x1, y1, x2, y2);
}

double base_svg_tick(double span, int most)
{
    double unit = pow(10.0, floor(log10(span / most)));
    const double factors[] = {1, 2, 5, 10};
    for (int i = 0; i < 4; i++)
        if (span / (factors[i] * unit) <= most)
            return factors[i] * unit;
    return 10 * unit;
}
