/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/values.c: values that several command lines of gyre-perf take: element types,
 * transports, lists of sizes. */
#include "tools/gyre-perf/command.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/settings/parse.h"
#include "base/settings/settings.h"
#include "base/settings/size.h"

/* The words of each setting, from the table itself: reading a setting reads the environment, which is for
 * later. */
static const char *const units[] = {
#define SETTING(id, name, kind, def, unit, meaning) [SET_##id] = unit,
#include "base/settings/table.def"
#undef SETTING
};

int perf_can_write(const char *path, char *why, size_t bytes)
{
    (void)flags_output(path); /* -J and -F name different files */
    if (!path || base_file_is_stdout(path))
        return 1;
    struct stat found;
    const int there = lstat(path, &found) == 0;
    if (there && !S_ISREG(found.st_mode))
        return 1; /* a pipe, a terminal, a link: not to be disturbed */
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) {
        snprintf(why, bytes, "%s cannot be written: %s", path, strerror(errno));
        return 0;
    }
    close(fd);
    if (!there)
        (void)unlink(path);
    return 1;
}

int perf_read_type(void *to, const char *word)
{
    static const char *const alias[][2] = {{"fp16", "half"},          {"bf16", "bfloat16"},
                                           {"fp32", "float"},         {"fp64", "double"},
                                           {"f8e4m3", "float8_e4m3"}, /* nccl-tests' names */
                                           {"f8e5m2", "float8_e5m2"}};
    for (size_t i = 0; i < sizeof alias / sizeof *alias; i++)
        word = strcmp(word, alias[i][0]) == 0 ? alias[i][1] : word;
    for (int t = 0; t < GYRE_TYPE_COUNT; t++) {
        if (strcmp(word, gyre_type_name((gyre_type_t)t)) == 0) {
            *(gyre_type_t *)to = (gyre_type_t)t;
            return 1;
        }
    }
    return 0;
}

const char *perf_type_names(void)
{
    static char names[320];
    names[0] = '\0';
    for (int t = 0; t < GYRE_TYPE_COUNT; t++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", t ? " " : "",
                 gyre_type_name((gyre_type_t)t));
    return names;
}

const char *perf_transports(void)
{
    return units[SET_TRANSPORT];
}

int perf_read_transport(void *to, const char *text)
{
    const char *word;
    size_t length;
    *(const char **)to = text;
    for (int i = 0; (word = base_setting_word(units[SET_TRANSPORT], i, &length)) != NULL; i++)
        if (strlen(text) == length && strncmp(word, text, length) == 0)
            return 1;
    return 0;
}

int perf_parse_sizes(const char *text, size_t *list, size_t room, size_t *count)
{
    *count = 0;
    for (;;) {
        char one[32];
        uint64_t bytes;
        const size_t length = strcspn(text, ",");
        if (length >= sizeof one || *count == room)
            return 0;
        memcpy(one, text, length);
        one[length] = '\0';
        if (!base_size_parse(one, &bytes) || bytes == 0 || bytes > SIZE_MAX)
            return 0;
        list[(*count)++] = (size_t)bytes;
        if (text[length] == '\0')
            return 1;
        text += length + 1;
    }
}

int perf_flags_read(const flags_t *flags, int argc, char **argv, int *words, FILE *out, char *why,
                    size_t bytes)
{
    flags_result_t result = flags_parse(flags, argc, argv, words, out, why, bytes);
    return result == FLAGS_GO ? PERF_OK : result == FLAGS_WRONG ? PERF_USAGE : -1;
}
