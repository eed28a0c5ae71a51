/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_hostlist.c: lists of hosts for ucx-run: -H, hostfiles, Slurm's variables. The first byte
 * chooses. */
#include "tests/fuzz/fuzz.h"
#include "tools/ucx-run/hosts/hostlist.h"

static void check(const run_hostlist_t *list)
{
    long slots = 0;
    for (int i = 0; i < list->count; i++) {
        const run_host_t *host = &list->host[i];
        FUZZ_CHECK(host->slots >= 0 && strlen(host->name) > 0 && strlen(host->name) <= RUN_HOST_NAME_MAX);
        FUZZ_CHECK(host->name[0] != '-' && strcspn(host->name, " \t\n'\"`$;&|<>\\") == strlen(host->name));
        slots += host->slots;
    }
    FUZZ_CHECK(slots == list->slots && list->count <= RUN_HOSTS_MAX && list->slots <= RUN_SLOTS_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    uint8_t mode = fuzz_byte(&in);
    run_hostlist_t list = {0}, copy = {0};
    char *text = fuzz_text(in.at, in.left), why[256];
    char *counts = strchr(text, '\n');
    int of[64], ok;
    if (mode % 3 == 0) {
        ok = run_hostlist_parse(&list, text, why, sizeof(why));
    } else if (mode % 3 == 1) {
        ok = run_hostlist_parse_file(&list, text, in.left, "fuzz", why, sizeof(why));
    } else {
        if (counts != NULL)
            *counts++ = '\0';
        ok = run_hostlist_parse_slurm(&list, text, counts, why, sizeof(why));
    }
    check(&list);
    if (ok) {
        FUZZ_CHECK(list.count > 0 && run_hostlist_copy(&list, &copy));
        run_hostlist_place(&copy, mode & 4 ? RUN_MAP_NODE : RUN_MAP_SLOT, 64, of);
        for (int r = 0; r < 64; r++)
            FUZZ_CHECK(of[r] >= 0 && of[r] < copy.count);
        run_hostlist_drop(&copy, copy.count / 2);
        check(&copy);
        run_hostlist_free(&copy);
    } else {
        FUZZ_CHECK(memchr(why, '\0', sizeof(why)) != NULL && why[0] != '\0');
    }
    run_hostlist_free(&list);
    free(text);
    return 0;
}
