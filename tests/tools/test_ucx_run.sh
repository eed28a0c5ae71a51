#!/bin/bash
# tests/tools/test_ucx_run.sh: all that ucx-run's help promises, with programs that know nothing of Gyre.
# deadline: 300
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/../support/launch.sh"
R=$UCX_RUN
# Ranks that would stay for 20 s or more were not waited for: $ms of the last run. No tighter bound, whatever the machine is busy with.
SOON=15000

# --- the environment of ranks ---
run "$R" -n 3 sh -c 'echo $GYRE_RANK/$GYRE_SIZE $GYRE_LOCAL_RANK/$GYRE_LOCAL_SIZE $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR'
want "environment" 0
sorted_is "environment" "0/3 0/3 0/3 0/3 127.0.0.1
1/3 1/3 1/3 1/3 127.0.0.1
2/3 2/3 2/3 2/3 127.0.0.1"
run "$R" -n 3 sh -c 'echo "$GYRE_ROOT $GYRE_SECRET $GYRE_JOB $MASTER_PORT"'
check "one root, secret and job for all" [ "$(sort -u "$W/out" | wc -l)" = 1 ]
check "their form" grep -qE '^127\.0\.0\.1:[0-9]+ [0-9a-f]{64} [0-9a-f]+ [0-9]+$' "$W/out"
cp "$W/out" "$W/first"
run "$R" -n 3 sh -c 'echo "$GYRE_ROOT $GYRE_SECRET $GYRE_JOB $MASTER_PORT"'
check "a fresh secret each time" [ "$(cut -d' ' -f2 "$W/first" "$W/out" | sort -u | wc -l)" = 2 ]
# The program listens there some seconds later; until then no connection may get it from the kernel.
read -r low high </proc/sys/net/ipv4/ip_local_port_range
port=$(cut -d' ' -f4 "$W/out" | head -n 1)
if [ "$low" -gt 10000 ]; then
    check "MASTER_PORT $port is not of $low to $high" [ "$port" -ge 10000 -a "$port" -lt "$low" ]
fi
# Rank 0, and only it, inherits the listening socket; all inherit the recorder.
run "$R" -n 2 --tag sh -c 'readlink /proc/self/fd/$GYRE_RECORDER_FD; [ -z "${GYRE_ROOT_FD-}" ] || readlink /proc/self/fd/$GYRE_ROOT_FD'
want "descriptors" 0
check "recorder" [ "$(grep -c 'memfd:gyre-recorder' "$W/out")" = 2 ]
check "listening socket" [ "$(grep -c 'socket:' "$W/out")" = 1 ]
check "only at rank 0" grep -q '^\[0\] socket:' "$W/out"
GYRE_ROOT_FD=7 run "$R" -n 2 --stdin none sh -c '[ $RANK = 0 ] || [ -z "${GYRE_ROOT_FD-}" ]'
want "an inherited GYRE_ROOT_FD goes no further" 0
run "$R" -n 2 -x ALPHA='a b' -x BETA= sh -c 'echo "$ALPHA|${BETA-unset}|"'
out_is "-x" "a b||
a b||"
run "$R" -x NO_SUCH_VARIABLE true
want "-x of nothing" 0 'NO_SUCH_VARIABLE'
run "$R" -x GYRE_RANK=5 true
want "-x of what is ours" 2 'set by ucx-run'
run "$R" --wdir / pwd
out_is "--wdir" /
run "$R" --wdir /nonexistent pwd
want "--wdir that is missing" 1 "/nonexistent"

# --- number of ranks and hosts ---
run "$R" echo one
out_is "one rank by default" one
run "$R" -np 2 echo x
out_is "-np" "x
x"
run "$R" -H localhost:2,127.0.0.1 echo x
out_is "-H gives the number" "x
x
x"
run "$R" -H "$(hostname):4" -n 2 echo x
out_is "-n wins over slots" "x
x"
printf '# hosts\n\nlocalhost slots=2\n127.0.0.1:1 # one more\n' >"$W/hosts"
run "$R" --hostfile "$W/hosts" echo x
out_is "--hostfile" "x
x
x"
echo "localhost cores=3" >"$W/hosts"
run "$R" --hostfile "$W/hosts" true
want "hostfile with an unknown word" 2 'hosts:1' 'cores=3'
: >"$W/hosts"
run "$R" --hostfile "$W/hosts" true
want "empty hostfile" 2 'no host'
run "$R" --hostfile "$W/missing" true
want "missing hostfile" 2 'missing'
for n in 0 -1 x 1.5 99999999999999999999 65537 ''; do
    run "$R" -n "$n" true
    want "-n '$n'" 2 'number of ranks'
done
run "$R"
want "no program" 2 'no program'
run "$R" --bogus
want "unknown option" 2 "bogus"
run "$R" -n
want "no value" 2 'needs a value'
run "$R" --tag=1 true
want "value too many" 2 'takes no value'
for option in '--bind hyper' '--timeout x' '--timeout 0' '--timeout -1' '--kill-grace x' '--max-restarts -1' '--stdin 3' '--stdin x'; do
    # shellcheck disable=SC2086 # two words on purpose
    run "$R" -n 2 $option true
    want "$option" 2 "${option%% *}"
done
run "$R" --help
want "--help" 0
check "it fits a terminal" [ "$(awk 'length($0) > 80' "$W/out")" = "" ]
for flag in $(sed -nE 's/^  (-.*)/\1/; T; s/   .*//; p' "$W/out" | grep -oE -- '--?[a-zA-Z][a-z-]*'); do
    check "the manual knows $flag" grep -qF -- "${flag//-/\\-}" docs/man/ucx-run.1
done
run "$R" --version
check "--version" grep -q '^ucx-run (Gyre) [0-9]' "$W/out"
run "$R" -n=2 true
want "-n=2 is no option" 2 "no option"
run "$UCX_RUN" --time-out=3 true
want "a slip in an option" 2 "'--time-out=3' is no option of ucx-run .did you mean --timeout"
run "$UCX_RUN" --oversubscribe -n 1 true
want "an option of mpirun" 2 "'--oversubscribe' is no option of ucx-run: leave it out, ranks may outnumber cores"
run "$UCX_RUN" --allow-run-as-root -n 1 true
want "another one" 2 "'--allow-run-as-root' is no option of ucx-run: leave it out, any user may start ranks"
run "$UCX_RUN" --nonsense true
want "an option that is near none" 2 "'--nonsense' is no option of ucx-run; see"
run "$R" --np=2 --kill_grace=1 echo x
out_is "= and underscores" "x
x"

# --- exit codes ---
run "$R" -n 3 true
want "all well" 0
run "$R" -n 3 sh -c '[ $RANK != 1 ] || exit 7'
want "first failing rank" 7 'rank 1 \(pid [0-9]+, .*\) exited with code 7'
run "$R" -n 3 sh -c 'if [ $RANK = 2 ]; then kill -9 $$; fi; sleep 20'
want "killed rank" 137 'rank 2 \(pid [0-9]+, .*\) killed by signal 9 \(SIGKILL\)'
check "they are not waited for (took $ms ms)" [ "$ms" -lt $SOON ]
run "$R" -n 3 sh -c 'trap "exit 0" TERM; if [ $RANK = 2 ]; then exit 5; fi; sleep 20 & wait'
want "the first, not those that we ended" 5
run "$R" -n 3 sh -c 'if [ $RANK = 0 ]; then exit 5; fi; trap "" TERM INT; sleep 20; sleep 20'
want "ranks that ignore TERM" 5
check "they go all the same (took $ms ms)" [ "$ms" -lt $SOON ]
# No TERM before KILL; the other rank fails the first only once it would hear one.
run "$R" -n 2 --kill-grace 0 sh -c 'if [ $RANK = 0 ]; then until [ -e "$0/ready" ]; do sleep 0.05; done; exit 5; fi
    trap "echo got TERM" TERM; : >"$0/ready"; sleep 20 & wait; sleep 20' "$W"
want "no grace" 5
out_is "no TERM" ""
check "at once (took $ms ms)" [ "$ms" -lt $SOON ]
# Longer than the default's 1.5 s after the failure.
run "$R" -n 2 --kill-grace 20 sh -c 'if [ $RANK = 0 ]; then exit 5; fi; until grep -q "code 5" "$0/err"; do sleep 0.05; done; sleep 2; echo finished' "$W"
want "long grace" 5
out_is "long grace" finished
run "$R" -n 2 /nonexistent/program
want "no such program" 127 "/nonexistent/program' not found"
run "$R" -n 2 no-such-program-anywhere
want "not in PATH" 127 "not found in PATH"
run "$R" -n 2 /etc/passwd
want "not executable" 126 'cannot execute'
run "$R" -n 2 /
want "a directory" 126 'cannot execute'
run "$R" -n 2 sh -c 'exit 127'
want "a program's own 127" 127 'exited with code 127'

# --- deadlines and restarts ---
run "$R" -n 2 --timeout 0.4 sleep 20
want "--timeout" 124 '--timeout 0.4 s has passed' 'rank 0 \(pid [0-9]+\): has not joined' 'rank 1'
check "in time (took $ms ms)" [ "$ms" -lt $SOON ]
if [ -e "$B/lib/libgyre.so" ]; then # an instrumented build has the archive alone
    cat >"$W/joins.c" <<'END'
#include <gyre/gyre.h>
#include <unistd.h>
int main(void)
{
    gyre_comm_t *world;
    return gyre_init(0, &world) != GYRE_OK || sleep(20);
}
END
    check "a program that joins and sleeps" gcc -Iinclude "$W/joins.c" -L"$B/lib" -lgyre -Wl,-rpath,"$B/lib" -o "$W/joins"
    run "$R" -n 2 --timeout 2 "$W/joins"
    want "--timeout of ranks that have joined" 124 "rank 0 \(pid [0-9]+\): in the program's own code, no call made" \
        "rank 1 \(pid [0-9]+\): in the"
    run "$R" -n 3 sh -c '[ $GYRE_RANK != 2 ] || export GYRE_TRANSPORT=shm; exec "$0"' "$W/joins"
    want "ranks that cannot be one job" 1 'exited with code 1 after the error: .* has another GYRE_TRANSPORT'
fi
run "$R" -n 2 --timeout 0.4 sh -c 'trap "" TERM; sleep 20; sleep 20'
want "--timeout against a deaf program" 124
check "in time, deaf (took $ms ms)" [ "$ms" -lt $SOON ]
run "$R" -n 2 --timeout 20 true
want "--timeout that is not reached" 0
run "$R" -n 2 --max-restarts 3 sh -c "echo \$GYRE_SECRET >>$W/secrets.\$RANK; [ \$(wc -l <$W/secrets.\$RANK) = 3 ] || exit 9; :"
want "--max-restarts" 0 'restart 1 of 3' 'restart 2 of 3'
check "secrets differ" [ "$(sort -u "$W/secrets.0" | wc -l)" = 3 ]
run "$R" -n 2 --max-restarts 1 sh -c 'exit 9'
want "restarts used up" 9 'restart 1 of 1'
# A port whose last connection was closed from this side, as those of an attempt before are, stays taken for a minute (TIME_WAIT).
port=$(python3 -c '
import socket
listener = socket.create_server(("127.0.0.1", 0))
caller = socket.create_connection(listener.getsockname())
accepted, _ = listener.accept()
print(listener.getsockname()[1])
for s in accepted, caller, listener:
    s.close()')
GYRE_PORT_RANGE=$port-$port run "$R" -n 2 --max-restarts 1 sh -c '[ $GYRE_RESTART = 1 ]'
want "one port for all attempts" 0 'restart 1 of 1'
run "$R" -n 2 --max-restarts 1 /nonexistent/program
want "no restart of what cannot run" 127
check "no restart said" test -z "$(grep restart "$W/err")"
run "$R" -n 2 --max-restarts 3 sh -c "echo >>$W/wrong.\$RANK; exit 2"
want "no restart of a wrong command line" 2 'exited with code 2' 'not started anew: code 2 says that the command line is wrong'
check "it was started once" [ "$(wc -l <"$W/wrong.0")" = 1 ]
GYRE_LAUNCH=mine run "$R" -n 2 --max-restarts 1 sh -c "echo \$GYRE_LAUNCH >>$W/launch; [ \$GYRE_RESTART = 1 ]"
want "all starts have one launch id" 0 'restart 1 of 1'
check "it is the same everywhere, and new" [ "$(sort -u "$W/launch" | grep -cE '^[0-9a-f]{16}$')/$(sort -u "$W/launch" | wc -l)" = 1/1 ]

# --- ranks that fail and do not end the others ---
keep() { run "$R" --no-kill-on-bad-exit --kill-grace 0.1 "$@"; }
both_said="grep -q 'rank 1 .*code 7' $W/err && grep -q 'rank 2 .*signal 9' $W/err"
keep -n 4 sh -c "[ \$RANK != 1 ] || exit 7; [ \$RANK != 2 ] || { until grep -q 'rank 1 .*code 7' $W/err; do sleep 0.05; done; kill -9 \$\$; }; until $both_said; do sleep 0.05; done; echo left"
want "--no-kill-on-bad-exit" 7
out_is "failures are said at once and the others go on" "left
left"
check "each once" [ "$(grep -cE 'rank [12] .*(code|signal)' "$W/err")" = 2 ]
GYRE_FAULT=1:50:kill run "$R" -n 3 --no_kill_on_bad_exit "$B/examples/survive" 0 300
want "a program that shrinks" 137 'rank 1 \(pid [0-9]+, .*\) killed by signal 9'
check "names the call that it struck" grep -qE 'kill in [a-z_]+, collective #50 of the job.s first communicator' "$W/err"
check "goes on" grep -q '^2 ranks go on from step' "$W/out"
check "and has its result" grep -q '^total 6.282664 after 300 steps, 2 ranks$' "$W/out"
keep -n 2 --max-restarts 1 sh -c '[ $RANK = 0 ]'
want "no restart of a job that has gone on to its end" 1
check "none said" test -z "$(grep restart "$W/err")"
keep -n 2 --max-restarts 1 sh -c '[ $GYRE_RESTART = 1 ]'
want "a restart where nobody was left" 0 'restart 1 of 1'
keep -n 2 --timeout 2 sh -c '[ $RANK = 0 ] || exit 5; sleep 20'
want "--timeout ends those that went on" 124 'rank 1 .* exited with code 5' '--timeout 2 s has passed'

# --- output ---
run "$R" -n 4 --tag sh -c 'for i in 1 2 3; do echo line $i; done; echo oops >&2'
want "--tag" 0 '^\[2\] oops$'
check "tagged lines" [ "$(grep -cE '^\[[0-3]\] line [123]$' "$W/out")" = 12 ]
run "$R" -n 4 sh -c 'i=0; while [ $i -lt 300 ]; do printf %s aaaaaaaaaaaaaaaaaaaa; printf "%s\n" bbbbbbbbbbbbbbbbbbbb; i=$((i+1)); done'
check "lines are never mixed" [ "$(sort -u "$W/out")" = aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbb ]
check "none is lost" [ "$(wc -l <"$W/out")" = 1200 ]
run "$R" -n 2 --tag printf 'no end'
sorted_is "unfinished lines" "[0] no end
[1] no end"
run "$R" -n 2 --tag printf 'a\r\nb\n\n'
check "CR LF is one end of line" [ "$(grep -c '^\[[01]\] *' "$W/out")" = 6 ]
run "$R" -n 2 sh -c 'head -c 300000 /dev/zero | tr "\0" "$RANK"; echo'
check "long lines stay whole" [ "$(sort "$W/out" | awk '{ print length($0), substr($0, 1, 1), substr($0, length($0), 1) }' | tr '\n' ';')" = "300000 0 0;300000 1 1;" ]
run "$R" -n 2 sh -c '[ $RANK = 1 ] || head -c 3000000 /dev/zero'
check "binary output of one rank passes untouched" [ "$(wc -c <"$W/out")" = 3000000 ]
run "$R" head -c 3000000 /dev/zero
check "also alone" [ "$(wc -c <"$W/out")" = 3000000 ]
timeout 20 "$R" -n 2 yes 2>/dev/null | head -n 1 >"$W/out"
check "a reader that leaves ends the job" [ "${PIPESTATUS[0]}" = 141 ]
if [ -e /dev/full ]; then
    run sh -c '"$1" -n 2 sh -c "trap : PIPE; echo a; sleep 0.2; echo b; exit 0" >/dev/full' - "$R"
    want "a full disk" 1 'cannot write to standard output: No space left on device'
    run sh -c '"$1" -n 2 --max-restarts 2 sh -c "trap : PIPE; echo a; echo run >&2; exit 0" >/dev/full' - "$R"
    want "a full disk, and restarts" 1
    check "what has succeeded is not started again" [ "$(grep -c '^run$' "$W/err")" = 2 ]
    run sh -c '"$1" -n 2 --dry-run true >/dev/full' - "$R"
    want "a full disk, and --dry-run" 1 'cannot write standard output'
fi
run "$R" -n 2 --output-filename "$W/logs" sh -c 'echo out $RANK; echo err $RANK >&2'
want "--output-filename" 0
check "files" [ "$(cat "$W/logs/rank.0/stdout" "$W/logs/rank.1/stderr")" = "out 0
err 1" ]
out_is "nothing on the terminal" ""
run "$R" -n 2 --output-filename /proc/nowhere true
want "--output-filename that cannot be" 1 '/proc/nowhere'
run sh -c '"$1" -n 2 echo x >&- 2>&-' sh "$R"
want "closed stdout and stderr" 0
mkfifo "$W/stalled"
exec 7<>"$W/stalled"
run sh -c '"$1" -n 2 --timeout 1 --kill-grace 0.3 yes >"$2"' sh "$R" "$W/stalled"
want "--timeout with a reader who stalls" 124 'the end of it is lost'
check "in time (took $ms ms)" [ "$ms" -lt $SOON ]
check "a slow reader loses nothing" [ "$(timeout 20 "$R" -n 2 seq 1 200000 | (sleep 0.5; wc -l))" = 400000 ]

# A terminal on our side is one for the ranks, too; checked with python's pty, which is a terminal on a pipe.
on_terminal() {
    run /usr/bin/python3 -c '
import os, pty, sys
status = pty.spawn(sys.argv[1:], lambda fd: os.read(fd, 65536))
sys.exit(os.waitstatus_to_exitcode(status))' "$@"
    tr -d '\r' <"$W/out" >"$W/plain" && mv "$W/plain" "$W/out"
}
if ! /usr/bin/python3 -c 'import pty; pty.openpty()' 2>/dev/null; then
    echo "no python3 or no pseudo-terminals here: output to a terminal was not tried"
else
    on_terminal "$R" -n 2 sh -c '[ -t 1 ] && echo terminal; echo end'
    want "on a terminal" 0
    check "both ranks see one" [ "$(grep -c terminal "$W/out")" = 2 ]
    check "nothing is lost" [ "$(grep -c end "$W/out")" = 2 ]
    on_terminal "$R" -n 2 --tag seq 1 5000
    check "many lines through a terminal" [ "$(sort -u "$W/out" | grep -cE '^\[[01]\] [0-9]+$')" = 10000 ]
    # Each waits to see what the other has printed.
    on_terminal "$R" -n 2 sh -c 'sees() { until grep -q "$1" "$2/out"; do sleep 0.05; done; }
        [ $RANK = 1 ] || { printf "\rbar"; sees line "$0"; }; [ $RANK = 0 ] || { sees bar "$0"; echo line; }' "$W"
    check "a progress bar shows at once, and lines do not run into it" [ "$(tr '\n' '|' <"$W/out")" = "bar|line|" ]
    on_terminal "$R" --timeout 20 sh -c 'stty -echo <&1 || exit 1
        printf "prompt> "; until grep -q "^prompt> $" "$0/out"; do sleep 0.05; done; echo answer' "$W"
    want "one rank may change the settings of its terminal" 0
    out_is "its prompt shows at once" "prompt> answer"
    # A terminal that nobody reads takes a part of a write and no more.
    run /usr/bin/python3 -c '
import os, subprocess, sys
master, terminal = os.openpty()
sys.exit(subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=terminal, start_new_session=True).returncode)' \
        "$R" -n 2 --timeout 1 --kill-grace 0.3 yes "a line of 37 bytes, which divides no room"
    want "--timeout on a terminal that stalls" 124 'the end of it is lost'
    check "in time, on a terminal (took $ms ms)" [ "$ms" -lt $SOON ]
fi

# --- input ---
echo hello >"$W/in"
run sh -c '"$1" -n 2 --tag cat <"$2"' sh "$R" "$W/in"
out_is "stdin goes to rank 0" "[0] hello"
run sh -c '"$1" -n 2 --tag --stdin 1 cat <"$2"' sh "$R" "$W/in"
out_is "--stdin 1" "[1] hello"
run sh -c '"$1" -n 2 --stdin none cat <"$2"' sh "$R" "$W/in"
out_is "--stdin none" ""
run sh -c '"$1" -n 3 --tag --stdin all cat <"$2"' sh "$R" "$W/in"
sorted_is "--stdin all" "[0] hello
[1] hello
[2] hello"
run sh -c 'seq 1 100000 | "$1" -n 2 --stdin all sh -c "if [ \$RANK = 0 ]; then wc -l; else head -n 1 >/dev/null; fi"' sh "$R"
check "--stdin all, one rank stops reading" [ "$(tr -d ' ' <"$W/out")" = 100000 ]

if /usr/bin/python3 -c 'import pty; pty.openpty()' 2>/dev/null; then
    # In the background of its terminal at first; then as after the shell's `fg`, which sends no signal.
    run /usr/bin/python3 -c '
import os, pty, signal, sys, time
shell, terminal = pty.fork()
if shell == 0:
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.execv(sys.argv[2], sys.argv[2:])
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.02)
    time.sleep(0.5)
    os.tcsetpgrp(0, job)
    os._exit(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]))
os.write(terminal, b"word\n")
try:
    while data := os.read(terminal, 4096):
        os.write(1, data)
except OSError: # EIO: the end
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(shell, 0)[1]))' "$W/reads" "$R" -n 2 --timeout 15 sh -c \
        '[ $RANK = 0 ] || exit 0; : >"$0"; read -r line; echo "got $line"' "$W/reads"
    want "input once a job comes to the foreground" 0
    check "is read" grep -q '^got word' "$W/out"
fi

if /usr/bin/python3 -c 'import pty; pty.openpty()' 2>/dev/null; then
    # The terminal gets another size once the ranks run.
    run /usr/bin/python3 -c '
import fcntl, os, pty, struct, sys, termios, time
def resize(rows, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
job, terminal = pty.fork()
if job == 0:
    while os.get_terminal_size(0) != (80, 24):
        time.sleep(0.02)
    os.execv(sys.argv[2], sys.argv[2:])
resize(24, 80)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
resize(50, 132)
try:
    while data := os.read(terminal, 4096):
        os.write(1, data)
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]))' "$W/runs" "$R" -n 2 --timeout 15 bash -c \
        '[ $RANK = 0 ] || exit 0; trap told=1 WINCH; stty size <&2; : >"$0"; until [ "$told $(stty size <&2)" = "1 50 132" ]; do sleep 0.05; done' "$W/runs"
    want "a rank hears of its terminal's new size" 0
    out_is "the size before" $'24 80\r'
fi

# --- signals (with job control on, so that background jobs do not ignore INT) ---
set -m
launch() { # SCRIPT [OPTIONS]: 2 ranks that announce themselves
    launch_ranks 2 "$1" "$R" -n 2 --tag "${@:2}"
}
for signal in USR1 USR2; do
    launch "trap 'echo got $signal; exit 0' $signal"
    kill -$signal "$launcher"
    finished
    want "$signal is passed on" 0
    sorted_is "$signal arrives" "[0] got $signal
[1] got $signal"
done
for signal in TERM HUP INT QUIT; do
    launch "trap 'echo got $signal; exit 0' $signal"
    kill -$signal "$launcher"
    finished
    want "$signal is passed on and handled" 0 "SIG$signal: passed on to 2 ranks"
    sorted_is "$signal arrives" "[0] got $signal
[1] got $signal"
done
launch :
kill -TERM "$launcher"
finished
want "TERM ends" 143
launch "trap '' TERM" --kill-grace 0.3
kill -TERM "$launcher"
finished
want "TERM, grace, KILL" 143 'did not end within the grace'
# One rank dies of the signal at once, the other uses the time that it has.
# (Left to itself, a bash whose command has just ended well goes on after an INT.)
dies() { echo "trap 'trap - $1; kill -$1 \$\$' $1"; }
for signal in TERM INT; do
    launch "if [ \$RANK = 0 ]; then trap 'sleep 2; echo saved; exit 0' $signal; else $(dies $signal); fi"
    kill -$signal "$launcher"
    finished
    want "$signal: one rank takes its time" "$([ $signal = TERM ] && echo 143 || echo 130)" 'rank 1 .* killed by signal'
    out_is "$signal: and gets it" "[0] saved"
done
rm -f "$W"/up.*
"$R" -n 2 sh -c 'seq 1 100000; echo $$ >"$0/up.$RANK"' "$W" >"$W/stalled" 2>"$W/err" &
launcher=$!
until_true 20 started 2 || bad "the ranks did not print it all"
ended() { gone "$(cat "$W/up.0")" && gone "$(cat "$W/up.1")"; }
until_true 20 ended || bad "the ranks do not end"
# A TERM that comes while they are being reaped gives the reader its grace; the next one does not.
insist() {
    kill -TERM "$launcher" 2>/dev/null
    gone "$launcher"
}
until_true 10 insist || bad "TERM does not end it"
finished
want "TERM when only a reader who stalls is waited for" 143 'the end of it is lost'
exec 7>&-
launch "[ \$RANK = 0 ] && trap '' TERM" --kill-grace 0.5
kill -TERM "$launcher"
finished
want "TERM, grace, KILL of the one that is left" 143 '1 rank did not end within the grace' 'rank 1 .* killed by signal 15'
launch "if [ \$RANK = 0 ]; then trap '' INT TERM; else $(dies INT); fi" --kill-grace 0.5
kill -INT "$launcher"
finished
want "INT, of which one rank died: the other is ended after the grace" 130 'rank 1 .* killed by signal 2'
launch "trap '' INT"
interrupted_twice
want "a second INT kills" 130 'interrupted again'
launch "trap '' INT" --no-kill-on-bad-exit
kill -KILL "$(cat "$W/up.1")"
noticed "the death" 'rank 1 .* killed by signal 9'
interrupted_twice
want "a second INT kills those that went on" 137 'interrupted again: killing 1 rank$'

# --- what must be finished: KILL waits for it ---
WAITS='rank 0 on .* must finish what it writes \(a checkpoint\): SIGKILL waits'
hold_rank_0() { # [OPTIONS]: both ignore TERM and INT, and rank 0 has something to finish
    rm -f "$W/go" "$W/over"
    launch "trap '' TERM INT; if [ \$RANK = 0 ]; then $HOLD fi" "$@"
}
hold_rank_0
kill -KILL "$(cat "$W/up.1")"
noticed "an unfinished write" "$WAITS"
check "an unfinished write: its rank lives" kill -0 "$(cat "$W/up.0")"
touch "$W/go"
finished
want "an unfinished write: then KILL" 137 'rank 1 .* killed by signal 9'
check "an unfinished write: is said once" [ "$(grep -cE "$WAITS" "$W/err")" = 1 ]
hold_rank_0
kill -KILL "$(cat "$W/up.1")"
noticed "an unfinished write, interrupted" "$WAITS"
interrupted_twice
want "a second INT does not wait for an unfinished write" 137 'interrupted again: killing 1 rank$'
hold_rank_0 --kill-grace 0.3
kill -TERM "$launcher"
noticed "an unfinished write after TERM" "$WAITS"
touch "$W/go"
finished
want "an unfinished write after TERM, then KILL" 143 'did not end within the grace'
hold_rank_0 --kill-grace 0
kill -KILL "$(cat "$W/up.1")"
finished
want "--kill-grace 0 does not wait for an unfinished write" 137
check "--kill-grace 0 does not wait: none is said" [ "$(grep -cE "$WAITS" "$W/err")" = 0 ]
hold_rank_0
touch "$W/go"
check "a write that is finished: is noted" until_true 10 [ -e "$W/over" ]
kill -KILL "$(cat "$W/up.1")"
finished
want "a write that is finished" 137
check "a write that is finished is not waited for" [ "$(grep -cE "$WAITS" "$W/err")" = 0 ]
launch "trap 'echo continued' CONT"
kill -TSTP "$launcher"
stopped() { grep -q '^State:.T' "/proc/$launcher/status" && grep -q '^State:.T' "/proc/$(cat "$W/up.0")/status"; }
check "TSTP stops both" until_true 10 stopped
kill -CONT "$launcher"
continued() { [ "$(grep -c continued "$W/out")" = 2 ]; }
check "CONT arrives" until_true 10 continued
kill -KILL "$launcher"
wait "$launcher" 2>/dev/null

# --- nobody is left behind ---
# Each rank starts a child of its own and one in a session of its own.
cat >"$W/family" <<'END'
#!/bin/bash
sleep 30 &
echo $! >"$1/kin.$RANK.a"
setsid sleep 30 &
echo $! >"$1/kin.$RANK.b"
echo $$ >"$1/kin.$RANK.c"
[ "$2" = stay ] && wait
exit "$2"
END
chmod +x "$W/family"
family_gone() { for f in "$W"/kin.*; do gone "$(cat "$f")" || return 1; done; }
# A program that ucx-run may not kill, since it has become another user, is not waited for. It is found by the working folder, for
# others may have no way to $W.
as_nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
mkdir -m 777 "$W/any"
printf '#include <unistd.h>\nint main(int n) { return setuid(0) != 0 || (n == 1 && sleep(25)); }\n' >"$W/become.c"
if [ "$(id -u)" = 0 ] && gcc "$W/become.c" -o "$W/any/become" && chmod 4755 "$W/any/become" &&
    (cd "$W/any" && "${as_nobody[@]}" sh -c './become test && "$0" --version' "$R" >/dev/null 2>&1); then
    run sh -c 'cd "$0" && exec "$@"' "$W/any" "${as_nobody[@]}" "$R" sh -c './become >/dev/null 2>&1 & echo $! >left
        until grep -qE "^Uid:.0.0" /proc/$!/status; do sleep 0.02; done'
    want "a process of another user is left" 0
    check "and not waited for (took $ms ms)" kill -KILL "$(cat "$W/any/left")"
else
    echo "no root, or no way to change the user: a process that may not be killed was not tried"
fi
run "$R" -n 2 "$W/family" "$W" 0
want "orphans of a job that ended well" 0
check "are gone" family_gone
check "at once (took $ms ms)" [ "$ms" -lt $SOON ]
run "$R" -n 2 "$W/family" "$W" 3
want "orphans of a job that failed" 3
check "are gone after a failure" family_gone
rm -f "$W"/kin.*
"$R" -n 2 "$W/family" "$W" stay &
launcher=$!
kin() { [ "$(cat "$W"/kin.* 2>/dev/null | wc -l)" = 6 ]; }
until_true 20 kin || bad "the family did not start"
kill -9 "$launcher"
wait "$launcher" 2>/dev/null
# What has fled into a session of its own cannot be reached once ucx-run was killed outright.
family_near_gone() { for f in "$W"/kin.*.[ac]; do gone "$(cat "$f")" || return 1; done; }
check "kill -9 of ucx-run leaves no rank and no child of one" until_true 10 family_near_gone
for f in "$W"/kin.*.b; do kill -9 "$(cat "$f")" 2>/dev/null; done
set +m

# A shell that becomes ucx-run leaves it a child that is none of its own.
run bash -c 'exec "$0" -n 2 seq 1 20000 > >(sleep 0.5; cat >"$1")' "$R" "$W/late"
want "a reader that was there before" 0
all_read() { [ "$(cat "$W/late" 2>/dev/null | wc -l)" = 40000 ]; }
check "is not swept away" until_true 10 all_read

# --- limits ---
check "8 ranks with 64 descriptors" bash -c 'ulimit -n 64 && timeout 20 "$0" -n 8 --tag true' "$R"
run bash -c 'ulimit -n 64 && "$0" -n 60 true' "$R"
want "too many for 64 descriptors" 1 'only 64' 'ulimit -n'
run bash -c 'ulimit -Sn 64 && "$0" -n 30 sh -c "ulimit -Sn" | sort -u' "$R"
out_is "a soft limit is raised for us and not for the ranks" 64

# --- dry run and binding ---
run "$R" -n 2 --dry-run --tag -x A='b c' --bind core "it's" 'x y'
want "--dry-run" 0
check "one command per rank" [ "$(grep -c "^env .*GYRE_RANK=[01] .*'A=b c' 'it'\\\\''s' 'x y'$" "$W/out")" = 2 ]
check "secret masked" [ "$(grep -c 'GYRE_SECRET=\*\*\*\*' "$W/out")" = 2 ]
check "no secret" test -z "$(grep -E '[0-9a-f]{64}' "$W/out")"
run "$R" -n 1 --bind core --report-bindings sh -c 'grep Cpus_allowed_list /proc/self/status'
want "--report-bindings" 0 'rank 0 \(pid [0-9]+, .*\) bound to core'
ranks=$((2 * $(nproc) + 1))
run "$R" -n $ranks --report-bindings true
want "more ranks than cores" 0 "rank $((ranks - 1)) \(pid [0-9]+, .*\) bound to core"
check "they share the cores evenly" bash -c 'grep -o "bound to core [0-9]*" "$0" | sort | uniq -c |
    awk "{ if (!n++ || \$1 < low) low = \$1; if (\$1 > high) high = \$1 } END { exit !(n > 0 && high - low <= 1) }"' "$W/err"
run "$R" -n 2 --bind none --report-bindings true
want "--bind none" 0 'rank 1 .* not bound'
check "none means all" bash -c '[ "$("$0" --bind none grep Cpus_allowed_list /proc/self/status)" = "$(grep Cpus_allowed_list /proc/self/status)" ]' "$R"
for how in l3 numa; do
    run "$R" -n 2 --bind $how true
    want "--bind $how" 0
done
for range in nonsense 23450:23460 23450x 23450 23460-23450 0-9; do
    GYRE_PORT_RANGE=$range run "$R" true
    want "a bad port range ($range)" 2 'GYRE_PORT_RANGE'
done

# --- nothing is called while nothing happens ---
"$R" -n 2 sleep 30 >"$W/out" 2>"$W/err" &
launcher=$!
# How often ucx-run, what guards it and the ranks have gone to sleep so far; nothing while one of them cannot be read.
# shellcheck disable=SC2046 # words
naps() { cat $(printf '/proc/%s/status ' "$launcher" $(pgrep -P "$launcher")) 2>/dev/null | awk '/^voluntary_ctxt/ { n++; sum += $2 } END { if (n >= 4) print sum }'; }
quiet() { # for a whole second, once all have started
    local before
    for _ in 1 2 3 4 5; do
        before=$(naps)
        sleep 1
        [ -n "$before" ] && [ "$(naps)" = "$before" ] && return
    done
    return 1
}
check "ucx-run and its leash sleep until something happens" quiet
kill -TERM "$launcher"
finished
finish
