/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_identity.c: what launchers tell: lines of PMI-1, Slurm's lists of hosts, the card of rank
 * 0, a unique id. The first byte chooses. */
#include "comm/launch/card.h"
#include "comm/launch/identity.h"
#include "comm/launch/nodelist.h"
#include "comm/launch/pmi1_parse.h"
#include "tests/fuzz/fuzz.h"

static void pmi(const char *line, size_t bytes)
{
    static const char *const keys[] = {"cmd", "rc", "value", "msg", "size", "rank"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const char *value;
        size_t n;
        int number;
        if (pmi1_field(line, bytes, keys[i], &value, &n))
            FUZZ_CHECK(value >= line && value + n <= line + bytes);
        if (pmi1_field_int(line, bytes, keys[i], &number))
            FUZZ_CHECK(number > -1000000000 && number < 1000000000);
        (void)pmi1_field_is(line, bytes, keys[i], "get_result");
    }
}

static void nodes(const char *text, size_t bytes)
{
    char host[64];
    if (comm_nodelist_first(text, bytes, host, sizeof(host)))
        FUZZ_CHECK(strlen(host) > 0 && strlen(host) < sizeof(host));
}

static void card(const char *text, size_t bytes)
{
    meet_card_t parsed, again;
    char made[MEET_CARD_MAX];
    if (!meet_card_parse(text, bytes, &parsed))
        return;
    meet_card_make(&parsed, made);
    FUZZ_CHECK(strlen(made) < MEET_CARD_MAX && meet_card_parse(made, strlen(made), &again));
    FUZZ_CHECK((parsed.error[0] != '\0') != (parsed.root[0] != '\0'));
    FUZZ_CHECK(strcmp(parsed.root, again.root) == 0 && strcmp(parsed.error, again.error) == 0 &&
               parsed.have_secret == again.have_secret);
}

/* An id for rank 1, which communicates with nobody yet. Every input is another job: an id is used once. */
static void unique_id(const char *text, size_t bytes)
{
    static uint64_t jobs;
    unsigned char id[COMM_ID_BYTES] = {0};
    const comm_gather_t by = {.call = "fuzz"};
    comm_identity_t who;
    memcpy(id, text, bytes < sizeof(id) ? bytes : sizeof(id));
    jobs++;
    memcpy(id + 40, &jobs, sizeof(jobs));
    if (comm_identity_by_id(&by, id, "name", 1, 3, &who) == GYRE_OK)
        FUZZ_CHECK(who.rank == 1 && who.size == 3 && who.root[0] != '\0' && who.root_fd < 0 &&
                   memchr(who.job, '\0', sizeof(who.job)) && memchr(who.root, '\0', sizeof(who.root)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    void (*const modes[])(const char *, size_t) = {pmi, nodes, card, unique_id};
    uint8_t mode = fuzz_byte(&in);
    modes[mode % 4]((const char *)in.at, in.left);
    return 0;
}
