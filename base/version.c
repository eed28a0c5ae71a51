/* SPDX-License-Identifier: Apache-2.0 */
/* base/version.c: the library's version as text and number. */
#include <gyre/version.h>

const char *gyre_version(void)
{
    return GYRE_VERSION;
}

int gyre_api_version(void)
{
    return GYRE_VERSION_NUMBER;
}
