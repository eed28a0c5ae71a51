#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/contributing/setting.sh: the toy setting is listed with its default, read, and refused when it is
# malformed.
$MAKE -o build/lib/libgyre-train.a build/tests/base/test_settings build/bin/gyre-doctor
build/tests/base/test_settings
build/bin/gyre-doctor --settings | grep '^GYRE_TOY  *48K  *48K '
GYRE_TOY=1M build/bin/gyre-doctor --settings | grep '^GYRE_TOY  *1M  *48K .*environment'
{ GYRE_TOY=much build/bin/gyre-doctor --settings 2>&1 || true; } | grep 'GYRE_TOY.*much'
bash tests/system/documents.sh
