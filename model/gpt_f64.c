/* model/gpt_f64.c: the decoder in double: the one that gradient checks run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/error.h"
#include "model/gpt.h"

#define MODEL_REAL_BITS 64
#include "model/real.h"
#include "model/gpt.inc"
