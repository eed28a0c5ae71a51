#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/contributing/test.sh: tools/run-tests finds the toy tests, builds them and runs them; nothing lists
# tests by name.
tools/run-tests unit ranks -k toy | tee toy.out
for test in 'base/test_toy' 'base/mp_toy -n 2' 'base/mp_toy -n 3'; do
    grep "^ok  *$test " toy.out
done
tail -1 toy.out | grep ', 0 failed'
