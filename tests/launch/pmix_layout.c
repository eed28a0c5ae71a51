/* SPDX-License-Identifier: Apache-2.0 */
/* tests/launch/pmix_layout.c: compares the declarations of comm/launch/pmix.h with the real pmix.h. Compiled,
 * never run. */
#include <pmix.h>
#include <stddef.h>

#include "comm/launch/pmix.h"

#define SAME(a, b) _Static_assert((a) == (b), #a " differs from " #b)

SAME(sizeof(pmix_id_t), sizeof(pmix_proc_t));
SAME(offsetof(pmix_id_t, rank), offsetof(pmix_proc_t, rank));
SAME(sizeof(pmix_datum_t), sizeof(pmix_value_t));
SAME(offsetof(pmix_datum_t, data), offsetof(pmix_value_t, data));
SAME(sizeof(pmix_option_t), sizeof(pmix_info_t));
SAME(offsetof(pmix_option_t, flags), offsetof(pmix_info_t, flags));
SAME(offsetof(pmix_option_t, value), offsetof(pmix_info_t, value));
SAME(PMIX_SUCCESS, 0);
SAME(PMIX_BOOL, 1);
SAME(PMIX_STRING, 3);
SAME(PMIX_UINT32, 14);
SAME(PMIX_GLOBAL, 3);
SAME((uint32_t)(PMIX_RANK_WILDCARD), UINT32_MAX - 1);
_Static_assert(sizeof(PMIX_JOB_SIZE) == sizeof("pmix.job.size"), "");
_Static_assert(sizeof(PMIX_LOCAL_SIZE) == sizeof("pmix.local.size"), "");
_Static_assert(sizeof(PMIX_COLLECT_DATA) == sizeof("pmix.collect"), "");

/* The calls take what we pass: the same shape, word for word. */
int same_calls(void);
int same_calls(void)
{
    pmix_status_t (*init)(pmix_proc_t *, pmix_info_t *, size_t) = PMIx_Init;
    pmix_status_t (*finalize)(const pmix_info_t *, size_t) = PMIx_Finalize;
    pmix_status_t (*get)(const pmix_proc_t *, const char *, const pmix_info_t *, size_t, pmix_value_t **) =
        PMIx_Get;
    pmix_status_t (*put)(pmix_scope_t, const char *, pmix_value_t *) = PMIx_Put;
    pmix_status_t (*commit)(void) = PMIx_Commit;
    pmix_status_t (*fence)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t) = PMIx_Fence;
    const char *(*text)(pmix_status_t) = PMIx_Error_string;
    return init && finalize && get && put && commit && fence && text &&
           sizeof(pmix_status_t) == sizeof(int) && sizeof(pmix_scope_t) == sizeof(uint8_t);
}
