/* SPDX-License-Identifier: Apache-2.0 */
/* base/text/foreign.c: how such files begin. A mark that text could begin with has a second part. */
#include "base/text/foreign.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINES "write its texts as lines of JSON first (to_json of datasets or pandas)"

typedef struct {
    size_t at, bytes;
    const char *mark;
} mark_t;

static const struct {
    mark_t mark[2];
    const char *what;
} foreign[] = {
    {{{0, 3, "\x1f\x8b\x08"}}, "is compressed by gzip: unpack it first (gunzip, or zcat to standard input)"},
    {{{0, 4, "\x28\xb5\x2f\xfd"}},
     "is compressed by zstd: unpack it first (unzstd, or zstdcat to standard input)"},
    {{{0, 6, "\xfd\x37zXZ\0"}}, "is compressed by xz: unpack it first (unxz, or xzcat to standard input)"},
    {{{0, 3, "BZh"}, {4, 6, "1AY&SY"}},
     "is compressed by bzip2: unpack it first (bunzip2, or bzcat to standard input)"},
    {{{0, 4, "PK\3\4"}}, "is a zip archive, or a file of PyTorch's, which is one"},
    {{{0, 5, "PAR1\x15"}}, "is a Parquet file: " LINES},
    {{{0, 8, "ARROW1\0\0"}}, "is an Arrow file: " LINES},
    {{{0, 4, "\xff\xff\xff\xff"}, {8, 4, "\x10\0\0\0"}}, "is an Arrow stream: " LINES},
    {{{0, 6, "\x93NUMPY"}},
     "is an array of NumPy, with a header: write its ids alone, as 16 bits: "
     "numpy.load(FILE).astype('uint16').tofile('NAME.bin'), which is read with --data-format nanogpt"},
    {{{0, 40, "version https://git-lfs.github.com/spec/"}},
     "is a pointer of Git LFS, not the file itself: fetch that (git lfs pull, or download it)"},
    {{{0, 4, "\xff\xfe\0\0"}}, "is text in UTF-32: convert it first (iconv -f UTF-32 -t UTF-8)"},
    {{{0, 4, "\0\0\xfe\xff"}}, "is text in UTF-32: convert it first (iconv -f UTF-32 -t UTF-8)"},
    {{{0, 2, "\xff\xfe"}}, "is text in UTF-16: convert it first (iconv -f UTF-16 -t UTF-8)"},
    {{{0, 2, "\xfe\xff"}}, "is text in UTF-16: convert it first (iconv -f UTF-16 -t UTF-8)"},
};

static int has(const mark_t *mark, const char *head, size_t bytes)
{
    return mark->bytes == 0 ||
           (bytes >= mark->at + mark->bytes && memcmp(head + mark->at, mark->mark, mark->bytes) == 0);
}

const char *base_foreign(const void *head, size_t bytes)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (has(&foreign[i].mark[0], head, bytes) && has(&foreign[i].mark[1], head, bytes))
            return foreign[i].what;
    return NULL;
}

const char *base_foreign_file(const char *path)
{
    char head[BASE_FOREIGN];
    struct stat info;
    const int fd = stat(path, &info) == 0 && S_ISREG(info.st_mode) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    const ssize_t got = fd < 0 ? 0 : read(fd, head, sizeof head);
    if (fd >= 0)
        close(fd);
    return got > 0 ? base_foreign(head, (size_t)got) : NULL;
}
