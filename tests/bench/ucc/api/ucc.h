/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bench/ucc/api/ucc.h: as much of UCC's interface as bench/backend_ucc.c uses, for machines without
 * UCC. tests/bench/fake_ucc.c is the library. Names and meanings are UCC's; the layout of structs is not. */
#ifndef TESTS_BENCH_UCC_H
#define TESTS_BENCH_UCC_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    UCC_OK = 0,
    UCC_INPROGRESS = 1,
    UCC_ERR_INVALID_PARAM = -3,
    UCC_ERR_NO_RESOURCE = -4,
    UCC_ERR_NO_MEMORY = -5,
    UCC_ERR_NO_MESSAGE = -6
} ucc_status_t;
typedef enum {
    UCC_COLL_TYPE_ALLGATHER = 1,
    UCC_COLL_TYPE_ALLREDUCE = 4,
    UCC_COLL_TYPE_ALLTOALL = 8,
    UCC_COLL_TYPE_BARRIER = 32,
    UCC_COLL_TYPE_BCAST = 64,
    UCC_COLL_TYPE_REDUCE_SCATTER = 4096
} ucc_coll_type_t;
enum {
    UCC_LIB_PARAM_FIELD_THREAD_MODE = 1,
    UCC_CONTEXT_PARAM_FIELD_TYPE = 1,
    UCC_CONTEXT_PARAM_FIELD_OOB = 4
};
enum { UCC_TEAM_PARAM_FIELD_EP = 4, UCC_TEAM_PARAM_FIELD_EP_RANGE = 16, UCC_TEAM_PARAM_FIELD_OOB = 128 };
typedef enum { UCC_THREAD_SINGLE } ucc_thread_mode_t;
typedef enum { UCC_CONTEXT_EXCLUSIVE, UCC_CONTEXT_SHARED } ucc_context_type_t;
typedef enum { UCC_COLLECTIVE_EP_RANGE_CONTIG } ucc_ep_range_type_t;
typedef enum { UCC_OP_SUM } ucc_reduction_op_t;
typedef enum { UCC_MEMORY_TYPE_HOST } ucc_memory_type_t;
typedef uint64_t ucc_datatype_t, ucc_count_t;
enum { UCC_DT_FLOAT32 = 11 };

typedef struct ucc_lib *ucc_lib_h;
typedef struct ucc_lib_config *ucc_lib_config_h;
typedef struct ucc_context *ucc_context_h;
typedef struct ucc_context_config *ucc_context_config_h;
typedef struct ucc_team *ucc_team_h;
typedef struct ucc_coll_req *ucc_coll_req_h;

typedef struct {
    ucc_status_t (*allgather)(void *src, void *recv, size_t size, void *info, void **request);
    ucc_status_t (*req_test)(void *request);
    ucc_status_t (*req_free)(void *request);
    void *coll_info;
    uint32_t n_oob_eps, oob_ep;
} ucc_oob_coll_t;
typedef struct {
    uint64_t mask;
    ucc_thread_mode_t thread_mode;
} ucc_lib_params_t;
typedef struct {
    uint64_t mask;
    ucc_context_type_t type;
    ucc_oob_coll_t oob;
} ucc_context_params_t;
typedef struct {
    uint64_t mask, ep;
    ucc_ep_range_type_t ep_range;
    ucc_oob_coll_t oob;
} ucc_team_params_t;
typedef struct {
    void *buffer;
    ucc_count_t count;
    ucc_datatype_t datatype;
    ucc_memory_type_t mem_type;
} ucc_coll_buffer_info_t;
typedef struct {
    uint64_t mask;
    ucc_coll_type_t coll_type;
    union {
        ucc_coll_buffer_info_t info;
    } src, dst;
    ucc_reduction_op_t op;
    uint64_t root;
} ucc_coll_args_t;

ucc_status_t ucc_lib_config_read(const char *prefix, const char *file, ucc_lib_config_h *config);
void ucc_lib_config_release(ucc_lib_config_h config);
ucc_status_t ucc_init(const ucc_lib_params_t *params, const ucc_lib_config_h config, ucc_lib_h *lib);
ucc_status_t ucc_finalize(ucc_lib_h lib);
ucc_status_t ucc_context_config_read(ucc_lib_h lib, const char *file, ucc_context_config_h *config);
void ucc_context_config_release(ucc_context_config_h config);
ucc_status_t ucc_context_create(ucc_lib_h lib, const ucc_context_params_t *params,
                                const ucc_context_config_h config, ucc_context_h *context);
ucc_status_t ucc_context_progress(ucc_context_h context);
ucc_status_t ucc_context_destroy(ucc_context_h context);
ucc_status_t ucc_team_create_post(ucc_context_h *contexts, uint32_t count, const ucc_team_params_t *params,
                                  ucc_team_h *team);
ucc_status_t ucc_team_create_test(ucc_team_h team);
ucc_status_t ucc_team_destroy(ucc_team_h team);
ucc_status_t ucc_collective_init(ucc_coll_args_t *args, ucc_coll_req_h *request, ucc_team_h team);
ucc_status_t ucc_collective_post(ucc_coll_req_h request);
ucc_status_t ucc_collective_test(ucc_coll_req_h request); /* inline in UCC */
ucc_status_t ucc_collective_finalize(ucc_coll_req_h request);
const char *ucc_status_string(ucc_status_t status);
const char *ucc_get_version_string(void);
#endif
