/* model/stage_f64.c: stages in double: for gradient checks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/error.h"
#include "model/random.h"
#include "model/stage.h"

#define MODEL_REAL_BITS 64
#include "model/real.h"
#include "model/stage_types.inc"

#include "model/stage_linear.inc"

#include "model/stage_attention.inc"

#include "model/stage_block.inc"

#include "model/stage_head.inc"

#include "model/stage_memory.inc"

#include "model/stage.inc"
