#!/bin/bash
# tests/system/sized.sh: every public struct that begins with `size_t size` follows the rules of docs/abi.md: the call
# that takes it reads or writes it with coll_sized_read or coll_sized_write, a test gives it sizes of older and newer
# programs, and docs/abi.md names it.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
awk '/^typedef struct/ { first = 1; sized = 0; next }
     first && NF && $1 !~ /^(\/\*|\*)/ { sized = $1 == "size_t" && $2 == "size;"; first = 0 }
     /^} / { if (sized) { sub(";", "", $2); print $2 } sized = 0 }' include/gyre/*.h >"$W/sized"
check "there are such structs" [ "$(wc -l <"$W/sized")" -ge 4 ]
while read -r type; do
    # the files that know the type and the helper, and the calls in them that name the type
    grep -rlE "\b$type\b" --include='*.c' base comm collectives model optim pipeline | xargs grep -lE 'coll_sized_(read|write)' >"$W/users"
    # shellcheck disable=SC2046 # words
    check "$type is read or written by its size" grep -qzE "(coll_sized_(read|write)\([^;]*|least = [^;]*)\b$type\b" $(cat "$W/users") /dev/null
    # shellcheck disable=SC2016
    check "$type is passed by no other way" bash -c '! grep -rnE "\->size *[!=]= *sizeof" --include="*.c" base comm collectives model optim pipeline | grep -q .'
    # one more field than the library knows, in the call itself
    check "a test of $type from a newer program" grep -rqzE "$type known;[^}]*newer" tests/collectives tests/pipeline
    check "docs/abi.md names $type" grep -qE "\b$type\b" docs/abi.md
done <"$W/sized"
finish
