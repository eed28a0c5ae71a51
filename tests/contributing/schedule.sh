#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/contributing/schedule.sh: the toy schedule is proved, keeps its bounds, and every tool knows its name.
$MAKE build/tests/pipeline/test_schedule build/tests/pipeline/test_check build/bin/gyre-plan \
    build/bin/gyre-train build/bin/gyre-doctor
build/tests/pipeline/test_check
build/tests/pipeline/test_schedule
build/bin/gyre-plan pipeline --schedule toy --stages 4 --micro-batches 8 | grep 'bubble'
build/bin/gyre-plan pipeline --schedule all | grep '^toy '
build/bin/gyre-train --help | grep '|toy'
bash tests/system/documents.sh
