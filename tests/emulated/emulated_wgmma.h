/* SPDX-License-Identifier: Apache-2.0 */
/* tests/emulated/emulated_wgmma.h: base/device/wgmma.h on the CPU. A product is done only when its thread
 * waits, as late as a GPU may: so a wait that is missing shows. Errors of a kernel that end the process:
 * products without a fence before them, a wait without a commit, copies that were not published, a
 * descriptor that is wrong, a block that ends without a wait. Shared memory begins at address 0. */
#ifndef EMULATED_WGMMA_H
#define EMULATED_WGMMA_H

/* d [16, 8 tiles] of each warp += a b */
struct emulated_product {
    float (*d)[4];
    int tiles;
    bool add, registers; /* registers: the left factor is a, and the right one lies along */
    uint32_t a[4];
    uint64_t left, right;
};
void emulated_wgmma_publish(void);
void emulated_wgmma_fence(void);
void emulated_wgmma_commit(void);
void emulated_wgmma_wait(void);
void emulated_wgmma(const emulated_product &product);

#define GYRE_WGMMA_SHARED(type, name) GYRE_DYNAMIC_SHARED(type, name)

static inline uint64_t gyre_wgmma_tile(const void *tile, int lines)
{
    return gyre_wgmma_bits((uint32_t)((const char *)tile - (const char *)emulated_here.dynamic_shared),
                           lines);
}
static inline void gyre_wgmma_publish(void)
{
    emulated_wgmma_publish();
}
static inline void gyre_wgmma_fence(void)
{
    emulated_wgmma_fence();
}
static inline void gyre_wgmma_commit(void)
{
    emulated_wgmma_commit();
}
template <int J> static inline void gyre_wgmma_wait(float (&)[J][4])
{
    emulated_wgmma_wait();
}
static inline void gyre_wgmma_tiles(float (&d)[8][4], uint64_t left, uint64_t right, int add)
{
    emulated_wgmma({d, 8, add != 0, false, {}, left, right});
}
template <int J>
static inline void gyre_wgmma_registers(float (&d)[J][4], const uint32_t (&left)[4], uint64_t right)
{
    static_assert(J == 8 || J == 16, "64 or 128 columns");
    emulated_wgmma({d, J, true, true, {left[0], left[1], left[2], left[3]}, 0, right});
}

#endif
