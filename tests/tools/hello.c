/* SPDX-License-Identifier: Apache-2.0 */
/* tests/tools/hello.c: the smallest program on Gyre: each rank prints how many there are. Tests of what is
 * installed compile it as a user would. */
#include <gyre/gyre.h>
#include <stdio.h>
int main(void)
{
    gyre_comm_t *world = NULL;
    float one = 1, sum = 0;
    if (gyre_init(NULL, &world) != GYRE_OK)
        return 1;
    if (gyre_all_reduce(&one, &sum, 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), world) != GYRE_OK)
        return 2;
    printf("%g\n", (double)sum);
    return gyre_finalize(world) != GYRE_OK;
}
