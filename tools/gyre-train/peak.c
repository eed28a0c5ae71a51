/* tools/gyre-train/peak.c: what the ranks' processors can do at most, for the use that training makes of them (MFU, Chowdhery
 * et al. 2022, appendix B).
 *
 * All ranks multiply large matrices at the same time, with the library and the single thread that training uses, and what
 * they achieve together is the peak: ranks that share a core share its peak, too. */
#include <stdlib.h>

#include "base/error.h"
#include "model/kernels.h"
#include "tools/gyre-train/train.h"

#define MEASURE_S 0.03
enum {
    SIDE = 384
}; /* its three matrices fit the second-level cache of most processors, and are long enough to run at full speed */

gyre_status_t train_peak_measure(gyre_comm_t *comm, double *flops)
{
    const size_t area = (size_t)SIDE * SIDE;
    model_matmul_init();
    float *matrix = malloc(3 * area * sizeof *matrix);
    if (!matrix)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the products that --peak-flops is measured with");
    for (size_t i = 0; i < 3 * area; i++)
        matrix[i] = (float)(i % 7) * 0.25f;
    double rate = 0.0, products = 0.0;
    /* the first makes the library ready */
    model_matmul_f32(0, 0, SIDE, SIDE, SIDE, 1.0f, matrix, SIDE, matrix + area, SIDE, 0.0f, matrix + 2 * area,
                     SIDE);
    gyre_status_t status = gyre_barrier(comm);
    for (base_time_t start = base_now(); status == GYRE_OK && rate <= 0.0;) {
        model_matmul_f32(0, 0, SIDE, SIDE, SIDE, 1.0f, matrix, SIDE, matrix + area, SIDE, 0.0f,
                         matrix + 2 * area, SIDE);
        products += 1.0;
        double seconds = (double)(base_now() - start) * 1e-9;
        if (seconds >= MEASURE_S)
            rate = products * 2.0 * SIDE * SIDE * SIDE / seconds;
    }
    free(matrix);
    if (status == GYRE_OK)
        status = gyre_all_reduce(&rate, flops, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), comm);
    return status;
}
