#!/bin/bash
# tests/tools/test_ucx_run_hosts.sh: ucx-run over several hosts, which are this one by other names: what stands in for ssh
# starts the agent here. All but the network is real: agents, leash, frames, restarts.
# deadline: 300
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/../support/launch.sh"
R=$UCX_RUN

# rsh HOST COMMAND: a host may be down, talk at login, or lack the program. A host's agent notes its number.
cat >"$W/rsh" <<END
#!/bin/sh
host=\$1
shift
[ ! -e $W/down.\$host ] || { echo "\$host does not answer" >&2; exit 255; }
[ ! -e $W/motd ] || { echo "Welcome to \$host"; echo "a word on stderr" >&2; }
echo \$\$ >$W/agent.\$host
exec sh -c "exec \$*"
END
chmod +x "$W/rsh"
H=127.0.0.2:2,127.0.0.3:2
on() { run "$R" --rsh "$W/rsh" --kill-grace 0.3 "$@"; }

# --- who and where ---
on -H $H sh -c 'echo $GYRE_RANK/$GYRE_SIZE $GYRE_LOCAL_RANK/$GYRE_LOCAL_SIZE $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE'
want "two hosts" 0
sorted_is "ranks and local ranks" "0/4 0/2 0/4 0/2
1/4 1/2 1/4 1/2
2/4 0/2 2/4 0/2
3/4 1/2 3/4 1/2"
on -H $H sh -c 'echo "$GYRE_ROOT $GYRE_SECRET $GYRE_JOB $MASTER_ADDR $MASTER_PORT"'
check "one root, secret and job for all" [ "$(sort -u "$W/out" | wc -l)" = 1 ]
check "their form" grep -qE '^127\.0\.0\.1:[0-9]+ [0-9a-f]{64} [0-9a-f]+ 127\.0\.0\.1 [0-9]+$' "$W/out"
on -H $H sh -c '[ $RANK != 0 ] || readlink /proc/self/fd/$GYRE_ROOT_FD; [ $RANK = 0 ] || [ -z "${GYRE_ROOT_FD-}" ]'
want "rank 0, and only it, inherits the listening socket" 0
check "a socket" grep -q '^socket:' "$W/out"
on -H 127.0.0.2:2,127.0.0.3 --map-by node --tag sh -c 'echo $GYRE_LOCAL_RANK'
sorted_is "--map-by node" "[0] 0
[1] 0
[2] 1"
on -H 127.0.0.2,127.0.0.3 -N 2 --tag sh -c 'echo $GYRE_LOCAL_RANK'
sorted_is "-N" "[0] 0
[1] 1
[2] 0
[3] 1"
on -H 127.0.0.2,127.0.0.3 -np 4 --tag sh -c 'echo $GYRE_LOCAL_RANK'
sorted_is "more ranks than slots" "[0] 0
[1] 1
[2] 0
[3] 1"
printf '127.0.0.2 slots=1\n127.0.0.3:1 # another\n' >"$W/hosts"
on --hostfile "$W/hosts" --tag sh -c 'echo $GYRE_LOCAL_RANK'
sorted_is "--hostfile" "[0] 0
[1] 0"
on -H localhost:1,127.0.0.3 --tag sh -c 'echo $GYRE_LOCAL_SIZE'
sorted_is "this host among others" "[0] 1
[1] 1"
on --launcher ssh -n 2 sh -c 'echo $GYRE_SIZE'
out_is "an agent on this host alone" "2
2"
on -H $H "$PERF" all_reduce -b 4K -e 4K -n 2 -w 1 -c 1
want "a collective over both" 0
check "and right" grep -q '^# *Out of bounds values *: *0 OK' "$W/out"

# --- environment ---
SECRETIVE=1 GYRE_LOG=error UCX_LOG_LEVEL=error NCCL_A=2 on -H $H -x 'NCCL_*' -x ALPHA='a b' env
check "what is asked for passes" [ "$(grep -cE '^(ALPHA=a b|NCCL_A=2|GYRE_LOG=error|UCX_LOG_LEVEL=error)$' "$W/out")" = 16 ]
cat >"$W/clean" <<END
#!/bin/sh
host=\$1
shift
exec env -i PATH=/usr/bin:/bin sh -c "exec \$*"
END
chmod +x "$W/clean"
SECRETIVE=1 run "$R" --rsh "$W/clean" -H $H env
check "what is not does not" test -z "$(grep SECRETIVE "$W/out")"
on -H $H --wdir / pwd
check "--wdir" [ "$(sort -u "$W/out")" = / ]
(cd "$W" && run "$R" --rsh "$W/rsh" -H 127.0.0.2 pwd)
check "our own directory otherwise" [ "$(cat "$W/out")" = "$(cd "$W" && pwd -P)" ]
cat >"$W/spy" <<END
#!/bin/sh
shift
exec 3<&0
sh -c "\$*" <&3 &
child=\$!
tr '\0' ' ' </proc/\$child/cmdline >>$W/words
wait \$child
END
chmod +x "$W/spy"
run "$R" --rsh "$W/spy" -H 127.0.0.2:1 sh -c 'tr "\0" " " </proc/$PPID/cmdline; echo; echo $GYRE_SECRET'
check "the secret is in no argument list" test -z "$(grep -F "$(tail -n 1 "$W/out")" "$W/words"; head -n 1 "$W/out" | grep -F "$(tail -n 1 "$W/out")")"

# --- exit codes ---
on -H $H true
want "all well" 0
on -H $H sh -c '[ $RANK != 3 ] || exit 7; sleep 20'
want "the first that failed" 7 'rank 3 \(pid [0-9]+, 127\.0\.0\.3\) exited with code 7'
check "their 20 s are not waited for (took $ms ms)" [ "$ms" -lt 15000 ]
on -H $H sh -c '[ $RANK != 1 ] || kill -9 $$; sleep 20'
want "killed" 137 'rank 1 \(pid [0-9]+, 127\.0\.0\.2\) killed by signal 9 \(SIGKILL\)'
on -H $H sh -c '[ $RANK != 1 ] || exit 5; trap "" TERM INT; sleep 20; sleep 20'
want "ranks that ignore TERM" 5
on -H $H /nonexistent/program
want "no such program" 127 "127\.0\.0\.[23]: program '/nonexistent/program' not found"
on -H $H /etc/passwd
want "not executable" 126 'cannot execute'
on -H $H --wdir /nonexistent true
want "no such directory" 1 "127\.0\.0\.[23]: --wdir: cannot enter '/nonexistent'"
on -H $H --timeout 3 sleep 20
want "--timeout" 124 '--timeout 3 s has passed' 'rank 0 \(pid [0-9]+, 127\.0\.0\.2\): has not joined' 'rank 3 \(pid'

# --- hosts that cannot be reached ---
touch "$W/down.127.0.0.3"
on -H $H sh -c "touch $W/ran"
want "a host that is down" 1 '127\.0\.0\.3 does not answer' 'cannot start ranks on 127\.0\.0\.3: .* ended with code 255'
check "nothing was started" [ ! -e "$W/ran" ]
rm "$W/down.127.0.0.3"
on --agent /nonexistent/ucx-run -H $H true
want "no ucx-run there" 1 '/nonexistent/ucx-run was not found there'
on --agent /bin/echo -H $H true
want "something else there" 1 'ended with code 0 before an agent answered'
on -H '-oProxyCommand=x' true
want "a name that is an option" 2 'no name of a host'
on -H 'a;b' true
want "a name with shell syntax" 2 'no name of a host'
run "$R" --launcher fork -H elsewhere:2 true
want "fork goes nowhere" 2 "elsewhere" "fork starts ranks nowhere else"
touch "$W/motd"
on -H $H echo hello
want "a shell that talks at login" 0 '127\.0\.0\.3: a word on stderr'
check "its talk is not output" [ "$(sort -u "$W/out")" = hello ]
rm "$W/motd"

# --- output ---
on -H $H sh -c 'i=0; while [ $i -lt 300 ]; do printf %s aaaaaaaaaaaaaaaaaaaa; printf "%s\n" bbbbbbbbbbbbbbbbbbbb; i=$((i+1)); done'
check "lines are never mixed" [ "$(sort -u "$W/out")" = aaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbb ]
check "none is lost" [ "$(wc -l <"$W/out")" = 1200 ]
on -H $H --tag sh -c 'echo oops >&2; printf "no end"'
want "stderr" 0 '^\[2\] oops$'
sorted_is "unfinished lines" "[0] no end
[1] no end
[2] no end
[3] no end"
on -H 127.0.0.2 head -c 3000000 /dev/zero
check "binary output passes" [ "$(wc -c <"$W/out")" = 3000000 ]
check "a slow reader loses nothing" [ "$(timeout 20 "$R" --rsh "$W/rsh" -H $H seq 1 100000 | (sleep 0.5; wc -l))" = 400000 ]
mkfifo "$W/stalled"
exec 7<>"$W/stalled"
run sh -c '"$1" --rsh "$2" -H 127.0.0.2,127.0.0.3 --timeout 3 --kill-grace 0.3 yes >"$3"' sh "$R" "$W/rsh" "$W/stalled"
want "--timeout with a reader who stalls" 124 'rank 0 \(pid [0-9]+, 127\.0\.0\.2\): has not joined' 'rank 1 .*has not joined' 'the end of it is lost'
check "in time (took $ms ms)" [ "$ms" -lt 15000 ]
exec 7>&-
timeout 20 "$R" --rsh "$W/rsh" -H $H yes 2>/dev/null | head -n 1 >"$W/out"
check "a reader that leaves ends the job" [ "${PIPESTATUS[0]}" = 141 ]
on -H $H --output-filename "$W/logs" sh -c 'echo out $RANK; echo err $RANK >&2'
check "--output-filename" [ "$(cat "$W"/logs/rank.[0-3]/stdout "$W/logs/rank.3/stderr")" = "out 0
out 1
out 2
out 3
err 3" ]

mkdir "$W/there"
(cd "$W" && run "$R" --rsh "$W/rsh" -H 127.0.0.2 --wdir "$W/there" --output-filename here true)
check "--output-filename is from our own directory on, --wdir or not" [ -e "$W/here/rank.0/stdout" ]

# --- input ---
seq 1 50000 >"$W/in"
run sh -c '"$1" --rsh "$2" -H 127.0.0.2,127.0.0.3 --tag wc -l <"$3"' sh "$R" "$W/rsh" "$W/in"
sorted_is "stdin goes to rank 0" "[0] 50000
[1] 0"
run sh -c '"$1" --rsh "$2" -H 127.0.0.2,127.0.0.3 --stdin 1 --tag wc -l <"$3"' sh "$R" "$W/rsh" "$W/in"
sorted_is "--stdin 1" "[0] 0
[1] 50000"
run sh -c '"$1" --rsh "$2" -H 127.0.0.2:2,127.0.0.3 --stdin all wc -l <"$3"' sh "$R" "$W/rsh" "$W/in"
out_is "--stdin all" "50000
50000
50000"
run sh -c '"$1" --rsh "$2" -H 127.0.0.2:2,127.0.0.3 --stdin none wc -l <"$3"' sh "$R" "$W/rsh" "$W/in"
out_is "--stdin none" "0
0
0"

# --- signals ---
set -m
launch() { # SCRIPT [OPTIONS]: 4 ranks that announce themselves
    launch_ranks 4 "$1" "$R" --rsh "$W/rsh" -H $H --tag --kill-grace 0.3 "${@:2}"
}
all_gone() { for f in "$W"/up.* "$W"/agent.*; do gone "$(cat "$f")" || return 1; done; }
for signal in USR1 TERM INT; do
    launch "trap 'echo got $signal; exit 0' $signal"
    kill -$signal "$launcher"
    finished
    want "$signal is passed on" 0
    sorted_is "$signal arrives" "[0] got $signal
[1] got $signal
[2] got $signal
[3] got $signal"
done
launch "trap '' INT"
interrupted_twice
want "a second INT kills" 130 'interrupted again'
check "everywhere" until_true 10 all_gone

# scancel signals the steps: the agents. The ranks have as long as after a signal to ucx-run.
launch_ranks 4 "[ \$RANK = 3 ] || trap 'trap \"\" TERM; sleep 3; echo saved; exit 0' TERM" "$R" --rsh "$W/rsh" -H $H
kill -TERM "$(cat "$W/agent.127.0.0.2")" "$(cat "$W/agent.127.0.0.3")"
finished
want "TERM to the agents, of which one rank dies at once" 143 'rank 3 .* killed by signal 15'
out_is "the others have the time to save" "saved
saved
saved"
launch "trap '' TERM"
kill -TERM "$(cat "$W/agent.127.0.0.3")"
finished
want "TERM to an agent, grace, KILL" 137 'rank [23] .* killed by signal 9'

# --- what must be finished: each agent's KILL waits for it ---
hold_rank_0() { # all ignore TERM and INT, and rank 0, on the first host, has something to finish
    rm -f "$W/go" "$W/over"
    launch "trap '' TERM INT; if [ \$RANK = 0 ]; then $HOLD fi"
}
for how in go INT launcher; do
    hold_rank_0
    kill -KILL "$(cat "$W/up.3")"
    noticed "an unfinished write ($how)" 'rank 0 on .* must finish what it writes \(a checkpoint\): SIGKILL waits'
    check "an unfinished write ($how): the other host's ranks do not wait" until_true 10 gone "$(cat "$W/up.2")"
    check "an unfinished write ($how): its rank lives" kill -0 "$(cat "$W/up.0")"
    case $how in
    go) touch "$W/go" ;;
    INT) interrupted_twice ;;
    launcher)
        kill -9 "$launcher"
        wait "$launcher" 2>/dev/null
        sleep 1 # more than TERM and KILL take
        check "an unfinished write: its rank lives without ucx-run" kill -0 "$(cat "$W/up.0")"
        touch "$W/go"
        ;;
    esac
    [ $how = launcher ] || finished
    check "an unfinished write ($how): in the end all are gone" until_true 10 all_gone
    [ $how = launcher ] || want "an unfinished write ($how): the exit code" 137 'rank 3 .* killed by signal 9'
    [ $how != INT ] || want "an unfinished write: a second INT" 137 'interrupted again: killing'
done
rm -f "$W/go"

# --- nobody is left behind ---
launch "trap '' TERM"
kill -9 "$launcher"
wait "$launcher" 2>/dev/null
check "kill -9 of the launcher leaves nobody" until_true 10 all_gone
launch :
kill -9 "$(cat "$W/agent.127.0.0.3")"
finished
want "an agent that is killed" 125 'host 127\.0\.0\.3 is lost .*: its 2 ranks count as failed' 'rank [23] \(127\.0\.0\.3\) is lost with its host'
check "leaves nobody" until_true 10 all_gone

# --- lost hosts and restarts ---
launch : --lost-after 2
kill -STOP "$(cat "$W/agent.127.0.0.3")"
finished
want "a host that falls silent" 125 'host 127\.0\.0\.3 is lost \(no sign of life for [0-9]+\.[0-9] s\): its 2 ranks'
cat >"$W/left" <<END
#!/bin/bash
[ \$RANK != 0 ] || { sleep 0.3; kill -9 \$(cat $W/agent.127.0.0.3); }
[ \$RANK -lt 2 ] || sleep 20
until grep -q 'rank 2 .* is lost' $W/err && grep -q 'rank 3 .* is lost' $W/err; do sleep 0.05; done
sleep 0.5
echo left
END
chmod +x "$W/left"
on -H $H --no-kill-on-bad-exit --max-restarts 1 "$W/left"
want "a lost host that does not end the others" 125 'host 127\.0\.0\.3 is lost .*: its 2 ranks count as failed'
out_is "they go on to their end" "left
left"
check "and are not started anew" test -z "$(grep restart "$W/err")"
cat >"$W/round" <<END
#!/bin/bash
echo "\$GYRE_RESTART \$RANK/\$GYRE_SIZE \$GYRE_LOCAL_RANK"
[ \$GYRE_RESTART != 0 ] && exit 0
[ \$RANK != 0 ] || { sleep 0.3; touch $W/down.127.0.0.3; kill -9 \$(cat $W/agent.127.0.0.3); }
sleep 20
END
chmod +x "$W/round"
on -H $H --max-restarts 2 "$W/round"
rm -f "$W"/down.*
want "a lost host, restarted on what is left" 0 'host 127\.0\.0\.3 is lost' '1 host left with 2 slots: going on with 2 of 4 ranks' 'restart 1 of 2'
check "fewer ranks" [ "$(grep -c '^1 [01]/2 [01]$' "$W/out")" = 2 ]
on -n 2 -H $H,127.0.0.4:2 --map-by node --max-restarts 2 "$W/round"
rm -f "$W"/down.*
want "a lost host, slots to spare" 0 '2 hosts left, with slots for all 2 ranks' 'restart 1 of 2'
check "as many ranks" [ "$(grep -c '^1 [01]/2 0$' "$W/out")" = 2 ]
cat >"$W/late" <<END
#!/bin/sh
[ \$GYRE_RESTART = 0 ] || { echo "\$GYRE_RESTART \$GYRE_SIZE"; exit 0; }
[ \$RANK != 0 ] || touch $W/down.127.0.0.3
exit 4
END
chmod +x "$W/late"
on -H 127.0.0.2,127.0.0.3 --max-restarts 2 "$W/late"
rm -f "$W"/down.*
want "a host that does not answer at a restart" 0 'restart 1 of 2' 'host 127\.0\.0\.3 is lost \(.*ended with code 255' 'going on with 1 of 2 ranks' 'restart 2 of 2'
out_is "is left out" "2 1"
on -H 127.0.0.2,127.0.0.3 --stdin all --max-restarts 1 sh -c 'echo $GYRE_RESTART $(cat); [ $GYRE_RESTART = 1 ]' <<<line
want "standard input that has ended before a restart" 0 'restart 1 of 1'
sorted_is "is empty then" "0 line
0 line
1
1"
set +m

# --- dry run ---
GYRE_LOG=error on -H $H,localhost --dry-run "it's" 'x y'
want "--dry-run" 0
check "the command of each host" [ "$(grep -cE "^$W/rsh 127\.0\.0\.[23] .*ucx-run['\\\\]* --as-agent" "$W/out")" = 2 ]
check "its ranks" grep -q '^# 127.0.0.3: ranks 2-3$' "$W/out"
check "this host without ssh" grep -qE "^'?/.*ucx-run'? --as-agent\$" "$W/out"
check "the environment" grep -qE "^cd .* && env GYRE_RANK=R GYRE_SIZE=5 .*GYRE_LOG=error.* 'it'\\\\''s' 'x y'\$" "$W/out"
check "secret masked" grep -q 'GYRE_SECRET=\*\*\*\*' "$W/out"
check "no secret" test -z "$(grep -E '[0-9a-f]{64}' "$W/out")"
run "$R" -H elsewhere:2 --dry-run --launcher-args '-p 2222' true
check "ssh that asks nothing and notices silence" grep -qE '^ssh -x -T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=1 -o ServerAliveCountMax=3 -p 2222 elsewhere ' "$W/out"

# --- other launchers: how our options are said in their words ---
says() { # NAME PATTERN: the last line of stdout
    check "$1" bash -c 'tail -n 1 "$0" | grep -qE -- "$1"' "$W/out" "$2"
}
options=(-H "a:2,b:2" -n 3 --map-by node --bind-to l3 --tag-output --report-bindings --wdir /tmp -x A='b c' --dry-run)
run "$R" --launcher openmpi "${options[@]}" --output-filename /logs --stdin 1 prog 'x y'
want "openmpi" 0
says "in Open MPI's words" "^env .*'A=b c' .*mpirun[.a-z]* (--allow-run-as-root )?-n 3 --host a:2,b:2 --oversubscribe --map-by node --bind-to l3cache:overload-allowed --report-bindings --tag-output --output-filename /logs:nojobid,nocopy --stdin 1 --wdir /tmp .*-x A .*-x GYRE_SECRET .*prog 'x y'\$"
run "$R" --launcher openmpi -n 2 --output-filename /a:b --dry-run prog
want "what Open MPI cannot do" 2 'output-filename: openmpi'
run "$R" --launcher openmpi -n 2 --no-kill-on-bad-exit --dry-run prog
says "ranks that may fail, in Open MPI's words" " --enable-recovery .* prog\$"
run "$R" --launcher hydra -n 2 --no-kill-on-bad-exit --dry-run prog
want "what Hydra cannot do" 2 'no-kill-on-bad-exit: not with hydra'
run "$R" --launcher hydra "${options[@]}" --output-filename /logs prog 'x y'
says "in Hydra's words" "^env .*HYDRA_TOPO_DEBUG=1 mpiexec.hydra -n 3 -hosts a:1,b:1 -bind-to l3cache -prepend-rank -outfile-pattern /logs/rank.%r/stdout -errfile-pattern /logs/rank.%r/stderr -wdir /tmp prog 'x y'\$"
run "$R" --launcher prrte "${options[@]}" --output-filename /logs --stdin 2 prog 'x y'
says "in PRRTE's words" "^env .*prterun (--allow-run-as-root )?-n 3 --host a:2,b:2 --map-by node:oversubscribe --bind-to l3cache:overload --display bindings --output tag,dir=/logs --stdin 2 --wdir /tmp .*-x A .*prog 'x y'\$"
check "secret masked" grep -qF "'GYRE_SECRET=********'" "$W/out"
check "no secret" test -z "$(grep -E '[0-9a-f]{64}' "$W/out")"
run "$R" --launcher hydra -n 2 --stdin all --dry-run true
want "what an engine cannot do" 2 'hydra gives its standard input to rank 0'
run "$R" --launcher openmpi -n 2 --stdin all --dry-run true
want "nor this one" 2 'stdin all: not with openmpi'
for engine in openmpi hydra prrte; do
    run "$R" --launcher $engine -n 2 --lost-after 3 --dry-run true
    want "$engine and --lost-after" 2 "--lost-after: $engine"
done
for engine in openmpi prrte; do
    run "$R" --launcher $engine -n 2 -N 1 --map-by node --dry-run true
    want "$engine, -N and --map-by node" 2 "--map-by node: $engine"
done
run env PATH="$W" "$R" --launcher prrte true
want "an engine that is not here" 127 'prterun is not in PATH'
run "$R" --launcher magic true
want "an unknown launcher" 2 "'magic' is not auto"
cat >"$W/mpiexec.hydra" <<END
#!/bin/sh
[ "\$1 \$2" = "-n 2" ] || exit 99
[ -n "\$GYRE_SECRET" ] || exit 98
shift 2
echo "restart \$GYRE_RESTART"
exec "\$@"
END
chmod +x "$W/mpiexec.hydra"
PATH=$W:$PATH run "$R" --launcher hydra -n 2 sh -c 'exit 7'
want "its exit code" 7
GYRE_RANK=3 GYRE_ROOT_FD=7 GYRE_JOB=outer GYRE_LOG=error PATH=$W:$PATH run "$R" --launcher hydra -n 2 env
check "its ranks have no identity of an outer job" test -z "$(grep -E '^GYRE_(RANK|ROOT_FD)=|^GYRE_JOB=outer' "$W/out")"
check "and what else is set" grep -q '^GYRE_LOG=error$' "$W/out"
PATH=$W:$PATH run "$R" --launcher hydra -n 2 --timeout 0.3 sleep 20
want "--timeout of an engine" 124 '--timeout 0.3 s has passed: ending mpiexec.hydra'
PATH=$W:$PATH "$R" --launcher hydra -n 2 --kill-grace 1 bash -c "trap '' TERM; echo \$\$ >$W/deaf; for i in {1..400}; do sleep 0.05; done" >"$W/out" 2>"$W/err" &
launcher=$!
until_true 10 [ -s "$W/deaf" ] || bad "the engine did not start"
kill -TERM "$launcher"
finished
want "TERM, grace, KILL of an engine" 143 'SIGTERM: passed on to mpiexec.hydra' 'mpiexec.hydra does not end: killing it'
check "and it is gone" until_true 10 gone "$(cat "$W/deaf")"
PATH=$W:$PATH "$R" --launcher hydra -n 2 bash -c "trap 'exit 0' TERM; echo \$\$ >$W/polite; for i in {1..400}; do sleep 0.05; done" >"$W/out" 2>"$W/err" &
launcher=$!
until_true 10 [ -s "$W/polite" ] || bad "the engine did not start"
kill -TERM "$launcher"
finished
want "an engine that makes 0 of a TERM" 143 'SIGTERM: passed on to mpiexec.hydra'
PATH=$W:$PATH run "$R" --launcher hydra -n 2 --max-restarts 1 sh -c '[ $GYRE_RESTART = 1 ]'
want "an engine is started anew" 0 'restart 1 of 1'
out_is "and told so" "restart 0
restart 1"
for code in 2 126 127; do
    PATH=$W:$PATH run "$R" --launcher hydra -n 2 --max-restarts 1 sh -c "exit $code"
    want "no engine is started anew after code $code" $code "not started anew: code $code says"
    out_is "it was started once" "restart 0"
done

# --- Slurm: which hosts, from the allocation's variables ---
run env SLURM_JOB_ID=1 SLURM_JOB_NODELIST='n[0-1]' SLURM_TASKS_PER_NODE='2(x2)' "$R" --dry-run true
want "an allocation" 0
check "a step of one task on each node" [ "$(grep -cE '^srun .*--overlap --nodes=1 --ntasks=1 .*--nodelist=n[01] .*ucx-run.? --as-agent$' "$W/out")" = 2 ]
check "its tasks" grep -q '^# n1: ranks 2-3$' "$W/out"
run env SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_JOB_NODELIST='n[0-1]' SLURM_TASKS_PER_NODE='2(x2)' "$R" --dry-run true
check "not within a step" grep -q "^# rank 0 on $(hostname)" "$W/out"
# A job of several components: the plain variables name the hosts of none, or of the first.
for first in -uSLURM_JOB_NODELIST SLURM_JOB_NODELIST=n0; do
    parts=("$first" SLURM_JOB_ID=1 SLURM_HET_SIZE=2 SLURM_JOB_NODELIST_HET_GROUP_0=n0 SLURM_JOB_NODELIST_HET_GROUP_1=n1)
    run env "${parts[@]}" "$R" --dry-run true
    want "components: $first" 2 'SLURM_HET_SIZE=2.* -H'
    run env "${parts[@]}" "$R" -H n1:2 --dry-run true
    want "components, and hosts are given: $first" 0
done
run env "${parts[@]}" SLURM_STEP_ID=0 "$R" --dry-run true
want "a step of one" 0
run env -u SLURM_JOB_ID "$R" --launcher slurm true
want "no allocation" 2 'no Slurm allocation'
printf 'w0 slots=2\nw1 slots=2\n' >"$W/hosts"
run env -u SLURM_JOB_ID K_MPI_JOB_ROLE=launcher OMPI_MCA_orte_default_hostfile="$W/hosts" OMPI_MCA_plm_rsh_args='-o ConnectionAttempts=10' "$R" --dry-run true
check "the MPI Operator's launcher" [ "$(grep -cE '^ssh .*-o ConnectionAttempts=10 w[01] ' "$W/out")" = 2 ]
finish
