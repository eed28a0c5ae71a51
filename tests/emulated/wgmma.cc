/* SPDX-License-Identifier: Apache-2.0 */
/* tests/emulated/wgmma.cc: products of warpgroups (emulated_wgmma.h). Each warp's 16 rows are computed when
 * its lanes wait: a warp reads its own rows of the left factor and all of the right one. */
#define GYRE_EMULATED 1
#include "base/device/wgmma.h"
#include "tests/emulated/machine.h"

#include <vector>

namespace emulated
{

struct Thread {
    std::vector<emulated_product> products;
    bool fenced, committed, unpublished;
};
/* of the block that runs on this OS thread */
static thread_local std::vector<Thread> threads;
static thread_local unsigned unpublished;

static unsigned linear(void)
{
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}

static Thread &self(void)
{
    if (threads.size() <= linear())
        threads.resize(1024);
    return threads[linear()];
}

void wgmma_block(void)
{
    if (unpublished == 0)
        return;
    for (Thread &thread : threads)
        thread.unpublished = false;
    unpublished = 0;
}

void wgmma_copied(void)
{
    Thread &thread = self();
    unpublished += !thread.unpublished;
    thread.unpublished = true;
}

void wgmma_thread_ends(void)
{
    if (linear() < threads.size() && !threads[linear()].products.empty())
        emulated_fatal("wgmma: the thread ends and has not waited for its products");
}

/* Element of a tile in shared memory: `along`: (line k, column i), else (line i, element k). */
static float element(uint64_t descriptor, bool along, unsigned i, unsigned k)
{
    const unsigned start = (unsigned)(descriptor & 0x3fff) << 4,
                   apart = (unsigned)(descriptor >> 16 & 0x3fff) << 4,
                   eight = (unsigned)(descriptor >> 32 & 0x3fff) << 4, line = along ? k : i,
                   across = along ? i : k;
    /* PTX ISA: with K across, the distance between 64 columns is not used: 16 elements are in one group */
    unsigned at =
        start + line / 8 * eight + line % 8 * 128 + (along ? across / 64 * apart : 0) + across % 64 * 2;
    at ^= (at >> 7 & 7) << 4;
    if (at + 2 > 227 * 1024)
        emulated_fatal("wgmma: a descriptor leads out of shared memory");
    uint16_t bits;
    memcpy(&bits, (const char *)emulated_here.dynamic_shared + at, sizeof(bits));
    return emulated_bits<float>((uint32_t)bits << 16);
}

template <unsigned N>
__attribute__((target_clones("avx2", "default"))) static void multiply(float (*d)[N], const float (*a)[16],
                                                                       const float (*b)[N])
{
    for (unsigned m = 0; m < 16; m++)
        for (unsigned k = 0; k < 16; k++)
            for (unsigned n = 0; n < N; n++)
                d[m][n] += a[m][k] * b[k][n];
}

struct Lane {
    std::vector<emulated_product> *products;
    unsigned warp;
};

template <unsigned N> static void product_of_warp(const Lane *lanes, size_t index)
{
    const emulated_product &first = (*lanes[0].products)[index];
    static thread_local float a[16][16], b[16][N], d[16][N];
    for (unsigned lane = 0; lane < 32; lane++) {
        const emulated_product &mine = (*lanes[lane].products)[index];
        const unsigned group = lane / 4, t = lane % 4;
        if (mine.left != first.left || mine.right != first.right || mine.add != first.add ||
            mine.tiles != first.tiles || mine.registers != first.registers)
            emulated_fatal("wgmma: lanes of one warp have different products");
        for (unsigned i = 0; first.registers && i < 4; i++) {
            float *to = &a[group + 8 * (i & 1)][2 * t + 8 * (i >> 1)];
            to[0] = emulated_bits<float>(mine.a[i] << 16);
            to[1] = emulated_bits<float>(mine.a[i] & 0xffff0000u);
        }
        for (unsigned j = 0; j < N / 8; j++)
            for (unsigned e = 0; e < 4; e++)
                d[group + e / 2 * 8][8 * j + 2 * t + e % 2] = first.add ? mine.d[j][e] : 0;
    }
    for (unsigned k = 0; k < 16; k++) {
        for (unsigned m = 0; !first.registers && m < 16; m++)
            a[m][k] = element(first.left, false, lanes[0].warp % 4 * 16 + m, k);
        for (unsigned n = 0; n < N; n++)
            b[k][n] = element(first.right, first.registers, n, k);
    }
    multiply<N>(d, a, b);
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned j = 0; j < N / 8; j++)
            for (unsigned e = 0; e < 4; e++)
                (*lanes[lane].products)[index].d[j][e] =
                    d[lane / 4 + e / 2 * 8][8 * j + 2 * (lane % 4) + e % 2];
}

static void products_of_warp(emulated_slots *slots)
{
    Lane lanes[32];
    if (slots->arrived != 0xffffffffu)
        emulated_fatal("wgmma in a warp of which lanes have ended");
    for (unsigned lane = 0; lane < 32; lane++) {
        memcpy(&lanes[lane], slots->lane[lane], sizeof(Lane));
        if (lanes[lane].products->size() != lanes[0].products->size())
            emulated_fatal("wgmma: lanes of one warp have different products");
    }
    for (size_t i = 0; i < lanes[0].products->size(); i++)
        if ((*lanes[0].products)[i].tiles == 8)
            product_of_warp<64>(lanes, i);
        else
            product_of_warp<128>(lanes, i);
    for (const Lane &lane : lanes)
        lane.products->clear();
}

} // namespace emulated

using namespace emulated;

void emulated_wgmma_publish(void)
{
    Thread &thread = self();
    unpublished -= thread.unpublished;
    thread.unpublished = false;
}

void emulated_wgmma_fence(void)
{
    __syncwarp();
    self().fenced = true;
}

void emulated_wgmma_commit(void)
{
    self().fenced = false;
    self().committed = true;
}

void emulated_wgmma_wait(void)
{
    Thread &thread = self();
    if (!thread.products.empty() && !thread.committed)
        emulated_fatal("wgmma: a wait for products that were not committed");
    Lane mine = {&thread.products, linear() / 32};
    emulated_meet(0xffffffffu, 11, &mine, sizeof(mine), products_of_warp);
}

void emulated_wgmma(const emulated_product &product)
{
    Thread &thread = self();
    if (!thread.fenced)
        emulated_fatal("wgmma: a product without gyre_wgmma_fence before it");
    if (unpublished > 0)
        emulated_fatal("wgmma: threads have copied to shared memory without gyre_wgmma_publish after it");
    for (uint64_t descriptor : {product.registers ? product.right : product.left, product.right})
        if (descriptor >> 62 != 1 || (descriptor >> 32 & 0x3fff) != 64)
            emulated_fatal(
                "wgmma: the descriptor has no 128-byte swizzle, or eight lines are not 1024 bytes");
    thread.committed = false;
    thread.products.push_back(product);
}
