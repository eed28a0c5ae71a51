/* SPDX-License-Identifier: Apache-2.0 */
/* base/text/svg.h: what drawings and pages share: escaped text, the frame of a file, simple shapes, round
 * steps of an axis. Lengths are SVG units, y grows downward. Nothing here fails by itself: the caller asks
 * the file (ferror). */
#ifndef BASE_TEXT_SVG_H
#define BASE_TEXT_SVG_H

#include <stdio.h>

/* Writes `text` so that SVG and HTML show it and take nothing of it for markup. Control characters other
 * than line breaks and tabs, which XML does not allow, are left out. */
void base_svg_escape(FILE *out, const char *text);

/* Opens a drawing of its own with a white ground. title: what it shows, for readers who cannot see it.
 * style: CSS. */
void base_svg_open(FILE *out, double width, double height, const char *title, const char *style);
void base_svg_close(FILE *out);

/* Words with their baseline at y, escaped; where they stand about x is up to the class. */
void base_svg_text(FILE *out, double x, double y, const char *class, const char *words);
/* A rectangle, its corners rounded by `radius`. */
void base_svg_rect(FILE *out, double x, double y, double width, double height, double radius,
                   const char *class);
void base_svg_line(FILE *out, double x1, double y1, double x2, double y2, const char *class);

/* The smallest of 1, 2, 5 x 10^k that cuts `span` into at most `most` parts. */
double base_svg_tick(double span, int most);

#endif
