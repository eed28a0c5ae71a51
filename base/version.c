/* base/version.c: which Gyre this is. The Makefile says it once, as GYRE_VERSION. */
#include <gyre/comm.h>

const char *gyre_version(void)
{
    return GYRE_VERSION;
}
