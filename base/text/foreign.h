/* SPDX-License-Identifier: Apache-2.0 */
/* base/text/foreign.h: files that people give by mistake, known by how they begin: packed ones, tables,
 * arrays, text in UTF-16 and UTF-32, and the pointers of Git LFS. */
#ifndef BASE_TEXT_FOREIGN_H
#define BASE_TEXT_FOREIGN_H

#include <stddef.h>

/* So many first bytes of a file are enough. */
enum { BASE_FOREIGN = 64 };

/* What the file is that begins with head [bytes], and what to do with it, to be put after its name in an
 * error: "is compressed by gzip: ...". Static text. NULL: none of these. */
const char *base_foreign(const void *head, size_t bytes);
/* The same of what `path` names, if it is a regular file; NULL: not one, or it cannot be read. */
const char *base_foreign_file(const char *path);

#endif
