/* model/gpt_f32.c: the decoder in float: the one that trains. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/error.h"
#include "model/gpt.h"

#define MODEL_REAL_BITS 32
#include "model/real.h"
#include "model/gpt.inc"
