/* model/plain_store.c: the plain store in float and double. */
#include "base/error.h"
#include "model/plain_store.h"

#define MODEL_REAL_BITS 32
#include "model/real.h"
#include "model/plain_store.inc"
#undef MODEL_REAL_BITS
#define MODEL_REAL_BITS 64
#include "model/real.h"
#include "model/plain_store.inc"
