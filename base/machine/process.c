/* SPDX-License-Identifier: Apache-2.0 */
/* base/machine/process.c: see process.h, and proc(5). */
#include "base/machine/process.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

int base_process_traced(int pid)
{
    char path[40], line[128];
    int tracer = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && tracer == 0 && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "TracerPid: %d", &tracer) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return tracer != 0;
}

/* The letter of a thread's state: it follows the name in brackets, which may have brackets of its own. */
static char state_of(const char *tasks, const char *task)
{
    char path[300], text[128];
    snprintf(path, sizeof(path), "%s/%s/stat", tasks, task);
    FILE *file = fopen(path, "re");
    const size_t n = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;
    if (file != NULL)
        fclose(file);
    text[n] = '\0';
    const char *end = strrchr(text, ')');
    return end != NULL && end[1] == ' ' ? end[2] : '\0';
}

int base_process_runs(int pid)
{
    char tasks[40];
    int runs = 0;
    snprintf(tasks, sizeof(tasks), "/proc/%d/task", pid);
    DIR *dir = opendir(tasks);
    for (struct dirent *entry; dir != NULL && !runs && (entry = readdir(dir)) != NULL;)
        runs = entry->d_name[0] != '.' && state_of(tasks, entry->d_name) == 'R';
    if (dir != NULL)
        closedir(dir);
    return runs;
}
