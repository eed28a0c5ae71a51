/* tools/gyre-train.c: trains a GPT on a text, on one rank or many. See gyre-train(1). */
#include <stdlib.h>

#include "base/log.h"
#include "base/settings.h"
#include "tools/gyre-train/train.h"

/* Before the ranks know each other: is this the one that speaks for all? */
static int speaks(void)
{
    const char *rank = base_env("RANK");
    int64_t own = base_setting_int(SET_RANK);
    return own >= 0 ? own == 0 : !rank || strtol(rank, NULL, 10) == 0;
}

int main(int argc, char **argv)
{
    train_options_t options;
    int speak = speaks(), level = base_log_limit;
    if (!speak) /* all ranks get the same command line: its errors need telling once */
        base_log_set_level(BASE_LOG_NONE);
    int status = train_options_parse(argc, argv, &options, speak);
    base_log_set_level((base_log_level_t)level);
    if (status < 0)
        status = train_run(&options);
    train_options_free(&options);
    return status;
}
