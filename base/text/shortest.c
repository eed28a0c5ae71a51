/* SPDX-License-Identifier: Apache-2.0 */
/* base/text/shortest.c: by trying. */
#include "base/text/shortest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *base_shortest(double value, char text[BASE_SHORTEST])
{
    char one[BASE_SHORTEST];
    snprintf(text, BASE_SHORTEST, "%.17g", value); /* which always reads back */
    for (int digits = 16; digits >= 1; digits--) {
        snprintf(one, sizeof one, "%.*g", digits, value);
        if (strtod(one, NULL) == value && strlen(one) < strlen(text)) /* 100, not 1e+02 */
            memcpy(text, one, sizeof one);
    }
    return text;
}
