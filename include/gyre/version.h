/* SPDX-License-Identifier: Apache-2.0 */
/* gyre/version.h: which Gyre a program is compiled with, and which one it runs with.
 *
 * The macros are those of the headers; gyre_version() and gyre_api_version() are the library's. docs/abi.md
 * says which of the two may be newer. The Makefile reads the version here. */
#ifndef GYRE_VERSION_H
#define GYRE_VERSION_H

#include <gyre/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GYRE_VERSION_MAJOR 0
#define GYRE_VERSION_MINOR 2
#define GYRE_VERSION_PATCH 0
#define GYRE_VERSION       "0.2.0"

/* 10000 major + 100 minor + patch: `#if GYRE_VERSION_NUMBER >= 200` asks for 0.2.0. */
#define GYRE_VERSION_NUMBER (GYRE_VERSION_MAJOR * 10000 + GYRE_VERSION_MINOR * 100 + GYRE_VERSION_PATCH)

/* The library's version as "major.minor.patch". Never NULL. */
GYRE_API const char *gyre_version(void);
/* The same as a number: GYRE_VERSION_NUMBER of the library. It may be higher than that of the headers. */
GYRE_API int gyre_api_version(void);

#ifdef __cplusplus
}
#endif
#endif
