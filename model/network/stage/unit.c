/* SPDX-License-Identifier: Apache-2.0 */
/* model/network/stage/unit.c: the stage as one translation unit, which lets its parts be static functions. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/thread/team.h"
#include "model/random.h"
#include "model/network/stage/stage.h"

#include "model/kernels/real.h"
#include "model/network/stage/types.inc"

#include "model/network/stage/linear.inc"

#include "model/network/stage/attention.inc"

#include "model/network/stage/context.inc"
#include "model/network/stage/ring.inc"

#include "model/network/stage/block.inc"

#include "model/network/stage/block_backward.inc"

#include "model/network/stage/head.inc"

#include "model/network/stage/checks.inc"

#include "model/network/stage/memory.inc"

#include "model/network/stage/plan.inc"

#include "model/network/stage/passes.inc"
