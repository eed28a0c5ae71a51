/* model/network/stage/plain_store.c: the plain store in float and double. */
#include "base/error.h"
#include "model/network/stage/plain_store.h"

#define MODEL_REAL_BITS 32
#include "model/kernels/real.h"
#include "model/network/stage/plain_store.inc"
#undef MODEL_REAL_BITS
#define MODEL_REAL_BITS 64
#include "model/kernels/real.h"
#include "model/network/stage/plain_store.inc"
