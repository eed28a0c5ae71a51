/* pipeline/config/device.c: what the CPU does and a GPU does not.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"
#include "pipeline/config/config.h"

static gyre_status_t refuse(const char *flag, unsigned long long value, const char *rest)
{
    return gyre_fail(GYRE_ERR_INVALID, "--%s %llu is for --device cpu: leave it out%s", flag, value, rest);
}

gyre_status_t train_config_check_device(const train_config_t *o)
{
    if (!o->device)
        return GYRE_OK;
    if (o->threads > 0)
        return refuse("threads", o->threads, "");
    if (o->sequence_parts > 1)
        return refuse("sequence-parts", o->sequence_parts, ", and --cp with it");
    if (o->ep > 1)
        return refuse("ep", o->ep, "");
    if (o->matmul_type)
        return gyre_fail(GYRE_ERR_INVALID,
                         "--matmul-type bf16 is for --device cpu: leave it out, a GPU with --precision bf16 "
                         "multiplies bf16");
    if (o->optimizer)
        return gyre_fail(GYRE_ERR_INVALID, "--optimizer muon is for --device cpu: a GPU has AdamW alone");
    if (o->offload)
        return gyre_fail(GYRE_ERR_INVALID,
                         "--offload is for --device cpu: leave it out, the state of a GPU is not in a file");
    const char *name = o->freeze     ? "freeze"
                       : o->lora > 0 ? "lora"
                       : o->lr_scale ? "lr-scale"
                       : o->decay_on ? "decay-on"
                                     : NULL;
    return name ? gyre_fail(GYRE_ERR_INVALID, "--%s is for --device cpu: a GPU updates all weights alike",
                            name)
                : GYRE_OK;
}
