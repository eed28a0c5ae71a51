/* SPDX-License-Identifier: Apache-2.0 */
/* model/kernels/order.h: some rows of a product with the bits of the whole product.
 *
 * A stage multiplies all positions of a sequence at once. A decoder has one new position, or some. The BLAS
 * may add in another order where a product has fewer rows, so a decoder does not call it. An order is found
 * once for each shape: the BLAS makes the whole product of random numbers, and one of the orders below must
 * give the same bits for its rows. Where none does, a product of some rows is made as the whole one, which is
 * slow and right.
 *
 *   one sum     fused multiply-adds, or products and sums, from the first term to the last
 *   in pieces   K is cut as OpenBLAS does for its panels (driver/level3/level3.c); the pieces' sums are added
 *               in order
 *
 * The order of a sum does not depend on the values, so what agrees on enough random numbers agrees always. */
#ifndef MODEL_KERNELS_ORDER_H
#define MODEL_KERNELS_ORDER_H

#include <stddef.h>

#include <gyre/status.h>

typedef struct model_order model_order_t;

/* Of C [M,N] = A [M,K] op(B) (model_matmul_f32 with alpha 1; trans: B is [N,K]), plus what is in C with
 * `more`. Takes a few times as long as the product; with `fast` no time: an order is assumed, and
 * bits may differ. NO_MEMORY. */
gyre_status_t model_order_create(int trans, size_t M, size_t N, size_t K, int more, int fast,
                                 model_order_t **out);
void model_order_destroy(model_order_t *order);
/* 0: rows with rising places are made as one whole product. */
int model_order_known(const model_order_t *order);

/* y [n] = rows at[0] .. at[n - 1] of the product, of their rows x [n] of A. Only the first `columns` of N are
 * wanted; x has the first `terms` of K, the others are 0. b [K,N]: B, transposed if trans, all of it, finite;
 * rows are ldy, ldx and ldb apart. */
void model_order_rows(const model_order_t *order, size_t n, const size_t *at, size_t columns, size_t terms,
                      const float *x, size_t ldx, const float *b, size_t ldb, float *y, size_t ldy);

#endif
