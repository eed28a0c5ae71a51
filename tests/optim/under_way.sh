#!/bin/bash
# tests/optim/under_way.sh: a checkpoint that is being written when another rank dies is finished, however long that takes: neither
# rank 0 nor ucx-run ends before. What keeps a rank's disk busy here is a library that holds fsync up until the test lets it go on.
# deadline: 120
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/../support/launch.sh"
TRAIN=$B/bin/gyre-train
CK=$W/checkpoints
awk 'BEGIN { for (i = 0; i < 900; i++) printf "line %d of verse has %d words, and more follow.\n", i, i * 7 % 23 }' >"$W/text"
RUN=(--data "$W/text" --layers 2 --hidden 48 --heads 3 --seq 48 --batch 8 --steps 40 --eval-every 0 --eval-sequences 9 --warmup 4
    --sample-tokens 0 --peak-flops 1e9 --report none --progress none --log "$W/log" --save "$W/st")
KEEP=(--checkpoint "$CK" --checkpoint-every 5)

cat >"$W/busy_disk.c" <<'END'
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int fsync(int fd)
{
    char name[64], path[4096] = "";
    const char *below = getenv("BUSY"), *begun = getenv("BUSY_BEGUN"), *go = getenv("BUSY_UNTIL");
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (readlink(name, path, sizeof path - 1) > 0 && strncmp(path, below, strlen(below)) == 0) {
        close(open(begun, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
        while (access(go, F_OK) != 0)
            usleep(20000);
    }
    return (int)syscall(SYS_fsync, fd);
}
END
check "a library for a busy disk" "${CC:-gcc}" -shared -fPIC -O1 -D_GNU_SOURCE -o "$W/busy_disk.so" "$W/busy_disk.c"
cat >"$W/rank" <<END
#!/bin/sh
# COMMAND...: a rank, whose number is noted, and with a busy disk if it is rank SLOW
echo \$\$ >$W/pid.\$GYRE_RANK
if [ "\$GYRE_RANK" = "\$SLOW" ]; then
    export LD_PRELOAD=$W/busy_disk.so BUSY=$CK/.step- BUSY_BEGUN=$W/begun BUSY_UNTIL=$W/go
    export ASAN_OPTIONS=\$ASAN_OPTIONS:verify_asan_link_order=0
fi
exec "\$@"
END
chmod +x "$W/rank"

run "$TRAIN" "${RUN[@]}"
want "the run that nothing ends" 0
mv "$W/st" "$W/one.st"

steps() { (cd "$CK" 2>/dev/null && echo step-*) | sed 's/step-0*//g'; }
begin() { # OPTION...: $ranks ranks in the background, as $launcher, with the grace that ucx-run gives unasked
    rm -rf "$CK" "$W/log" "$W/st" "$W/begun" "$W/go"
    SLOW=$slow "$UCX_RUN" -n $ranks --timeout 100 "$W/rank" "$TRAIN" "${RUN[@]}" "$@" >"$W/out" 2>"$W/err" &
    launcher=$!
}
is_written() { compgen -G "$CK/.step-*/shard-0000$1.done" >/dev/null; }
both_written() { [ -e "$W/begun" ] && { [ "$1" = 0 ] || is_written 1; }; }

ranks=2 slow=0
# Of ZeRO's two shards the dead rank has written its own before.
for zero in 0 1; do
    begin "${KEEP[@]}" --zero $zero
    check "ZeRO $zero: a checkpoint is begun" until_true 20 both_written $zero
    kill -KILL "$(cat "$W/pid.1")"
    noticed "ZeRO $zero: a checkpoint under way" 'rank 0 on .* must finish what it writes \(a checkpoint\): SIGKILL waits'
    check "ZeRO $zero: rank 0 says that it waits" until_true 20 \
        grep -q "the checkpoint of step 5 is still being written to $CK: this rank ends when it is done" "$W/err"
    check "ZeRO $zero: there is none yet" [ "$(steps)" = '*' ]
    touch "$W/go"
    finished
    want "ZeRO $zero: the end" 137 'rank 1 .* killed by signal 9' \
        "the newest checkpoint in $CK is of step 5: the same command with --resume goes on after it"
    check "ZeRO $zero: no complaint about the disk" [ "$(grep -c 'does not answer' "$W/err")" = 0 ]
    check "ZeRO $zero: it is there" [ "$(steps)" = 5 ]
    check "ZeRO $zero: nothing half-written stays" bash -c "! ls -A '$CK' | grep -q '^[.]'"
    run "$UCX_RUN" -n 2 --timeout 25 "$TRAIN" "${RUN[@]}" "${KEEP[@]}" --zero $zero --resume
    want "ZeRO $zero: goes on" 0
    check "ZeRO $zero: after it" grep -q '"resumed":5,' "$W/log"
    check "ZeRO $zero: to the same weights" cmp "$W/one.st" "$W/st"
done

# The dead rank has written its shard, and so has rank 0; that of the third is waited for, which lives.
ranks=3 slow=1
three_written() { [ -e "$W/begun" ] && is_written 0 && is_written 2; }
begin "${KEEP[@]}" --zero 1
check "another's disk: a checkpoint is begun" until_true 20 three_written
kill -KILL "$(cat "$W/pid.2")"
check "another's disk: rank 0 says that it waits" until_true 20 \
    grep -qE "the checkpoint of step 5 is (still being written|given up)" "$W/err"
touch "$W/go"
finished
want "another's disk: the end" 137 "the newest checkpoint in $CK is of step 5: the same command with --resume goes on after it"
check "another's disk: it is there" [ "$(steps)" = 5 ]
check "another's disk: nothing half-written stays" bash -c "! ls -A '$CK' | grep -q '^[.]'"

ranks=2
# Nothing is under way, nothing is waited for.
begin --steps 1000000
check "no checkpoint: a step is made" until_true 20 grep -qs '"step":3,' "$W/log"
kill -KILL "$(cat "$W/pid.1")"
finished
want "no checkpoint: the end" 137
check "no checkpoint: is not waited for" [ "$(grep -c 'SIGKILL waits' "$W/err")" = 0 ]
finish
