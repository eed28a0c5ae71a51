# tests/launch/ucx-run.sh: what ucx-run promises, on one host (fork), over hosts by ssh, and inside a Slurm allocation; sourced by check.
# shellcheck shell=bash disable=SC2154,SC2034 # its variables
# SPDX-License-Identifier: Apache-2.0

# One rank on each of three hosts, but for fork; rank 0's host is where ucx-run is. --kill-grace: tests need not wait for the default.
over_fork=("$UCX_RUN" -n 3)
over_ssh=("$UCX_RUN" --launcher ssh -H "$H0,$H1,$H2")
over_slurm=(salloc -Q -N3 --ntasks-per-node=1 "$UCX_RUN" --launcher slurm)
over_openmpi=("$UCX_RUN" --launcher openmpi -H "$H0,$H1,$H2")
over_hydra=("$UCX_RUN" --launcher hydra -H "$H0,$H1,$H2")
host_of() { # KIND RANK
    if [ "$1" = fork ]; then host 0; else host "$2"; fi
}
# Processes on any host whose command line has the word.
count_of() { pgrep -fc -- "$1" || :; }
# soon COMMAND...: succeeds within 5 s
soon() {
    for _ in {1..100}; do
        "$@" && return
        sleep 0.05
    done
    return 1
}
# gone WORD SECONDS: waits until none is left
gone() {
    local until=$(($(date +%s%N) + $2 * 1000000000))
    while [ "$(count_of "$1")" != 0 ]; do
        [ "$(date +%s%N)" -lt $until ] || return 1
        sleep 0.05
    done
}
# sweep WORD: what a check that failed has left must not disturb the next
sweep() {
    local pid
    for pid in $(pgrep -f -- "$1"); do kill -9 "$pid" 2>/dev/null; done
    rm -f "$W"/here.* "$W"/got.*
}
# begin WORD RANKS COMMAND...: starts COMMAND on host 0 in the background: $job, and ucx-run's number in that host in $runner. Waits until
# so many ranks have said that they are there.
begin() {
    start "$@"
    # A salloc whose port the one before it had may get the news of that one's end, and then gives up (Slurm 22.05).
    if [ -n "$missed" ] && grep -q 'salloc: .*spurious message' "$W/err"; then
        wait $job
        start "$@"
    fi
    also "only $missed" [ -z "$missed" ]
    runner=$(cat "$W/runner")
}
start() { # as begin; $missed: who is not there
    local word=$1 ranks=$2
    shift 2
    rm -f "$W/runner" "$W/here".*
    # Within a shell of its own, whose stderr takes bash's word on how it died.
    # shellcheck disable=SC2016 # the inner shell's words
    (timeout -k 5 40 "$NETHOSTS" exec 0 -- sh -c 'echo $$ >"$1/runner"; shift; exec "$@"' "$word" "$W" "$@" >"$W/out" 2>"$W/err" </dev/null
        exit $?) 2>/dev/null &
    job=$!
    for _ in {1..200}; do
        missed="$(ls "$W" | grep -c '^here\.') of $ranks ranks have said that they are there"
        [ "${missed%% *}" = "$ranks" ] && missed='' && break
        sleep 0.05
    done
}
now() { from=${EPOCHREALTIME/[.,]/}; }
# end: waits for it; $rc, $ms since `now`
end() {
    wait $job
    rc=$?
    ms=$(((${EPOCHREALTIME/[.,]/} - from) / 1000))
}
# ends NAME CODE LEAST MOST [PATTERN...]: the job that `begin $word` has started ends as `want` says, so many ms after `now`, and leaves no
# process behind
ends() {
    local name=$1 code=$2 least=$3 most=$4
    shift 4
    end
    also "it took $ms ms, not $least to $most" [ "$ms" -ge "$least" -a "$ms" -lt "$most" ]
    also "$(count_of "$word") processes are left" gone "$word" 5
    want "$name" "$code" "$@"
    sweep "$word"
}

# input_to NAME WHOM SCRIPT [LINES]: three ranks of $over, who say who they are and what they have read; 300 KB are more than a pipe holds
input_to() {
    local name=$1 to=$2 script=$3 lines=${4:-50000} flag=(--stdin "$2") readers expected r
    case $to in
    default) readers=0 flag=() ;;
    all) readers="0 1 2" ;;
    none) readers='' ;;
    *) readers=$to ;;
    esac
    now
    seq "$lines" | timeout -k 5 30 "$NETHOSTS" exec 0 -- "${over[@]}" "${flag[@]}" sh -c "$script" >"$W/out" 2>"$W/err"
    rc=$?
    ms=$(((${EPOCHREALTIME/[.,]/} - from) / 1000))
    expected=$(for r in 0 1 2; do
        if [[ " $readers " == *" $r "* ]]; then echo "$r $(seq "$lines" | cksum)"; else echo "$r $(cksum </dev/null)"; fi
    done)
    also "it came as $(sort "$W/out" | tr '\n' ';')" [ "$(sort "$W/out")" = "$expected" ]
    want "$name" 0
}
# files_of NAME KIND SCRIPT: --output-filename makes the files of three ranks; SCRIPT says "out R" and "err R"
files_of() {
    local r
    wanted "$1" || return 0
    run 0 "${over[@]}" --output-filename "$W/files.$2" sh -c "$3"
    for r in 0 1 2; do
        also "rank $r's files are wrong" [ "$(cat "$W/files.$2/rank.$r/stdout" "$W/files.$2/rank.$r/stderr" 2>&1)" = "out $r
err $r" ]
    done
    want "$1" 0
}

# ---- the program ----
for kind in fork ssh slurm; do
    declare -n over=over_$kind
    hosts=3
    [ $kind != fork ] || hosts=1
    name="ucx-run ($kind), gyre-perf"
    if wanted "$name"; then
        run 0 "${over[@]}" "${perf[@]}"
        right "$name" 3 $hosts
    fi
    name="ucx-run ($kind), gyre-perf, every collective"
    if wanted "$name"; then
        DEADLINE=100 run 0 "${over[@]}" sh -c "for c in all_gather broadcast reduce reduce_scatter alltoall gather scatter; do
            $PERF \$c -b 4 -e 64K -f 128 -n 2 -w 1 -c 1 || exit 1; done"
        also "not all were right" [ "$(grep -c '^# Out of bounds values : 0 OK' "$W/out")" = 7 ]
        want "$name" 0
    fi
done
name="ucx-run (ssh), 3 hosts x 2 by a hostfile, from outside of them"
if wanted "$name"; then
    "$NETHOSTS" hostfile openmpi 2 >"$W/hosts.openmpi"
    from=${EPOCHREALTIME/[.,]/}
    timeout -k 5 40 "$UCX_RUN" --rsh "ssh -F $("$NETHOSTS" dir)/ssh/config" --hostfile "$W/hosts.openmpi" "${perf[@]}" >"$W/out" 2>"$W/err" </dev/null
    rc=$?
    ms=$(((${EPOCHREALTIME/[.,]/} - from) / 1000))
    right "$name" 6 3
fi
name="ucx-run, auto: srun inside an allocation"
if wanted "$name"; then
    run 0 salloc -Q -N2 --ntasks-per-node=2 "$UCX_RUN" "${perf[@]}"
    right "$name" 4 2
fi
name="ucx-run, auto: ssh with a host list"
if wanted "$name"; then
    run 0 "$UCX_RUN" -H "$H1:2,$H2:2" "${perf[@]}"
    right "$name" 4 2
fi

# ---- other launchers' words for the same ----
for kind in openmpi hydra; do
    name="ucx-run --launcher $kind, 3 hosts x 2"
    if wanted "$name"; then
        run 0 "$UCX_RUN" --launcher $kind -H "$H0:2,$H1:2,$H2:2" "${perf[@]}"
        right "$name" 6 3
    fi
    name="ucx-run --launcher $kind: the exit code is a rank's"
    if wanted "$name"; then
        # shellcheck disable=SC2016
        run 0 "$UCX_RUN" --launcher $kind -H "$H0,$H1" sh -c '[ "${PMI_RANK-$OMPI_COMM_WORLD_RANK}" != 1 ] || exit 3'
        want "$name" 3
    fi
done
for kind in openmpi hydra; do
    declare -n over=over_$kind
    word=gyre-launch-$kind-$$
    # shellcheck disable=SC2016
    patient=': >'"$W"'/here.$(hostname); while :; do sleep 0.1; done'
    name="ucx-run --launcher $kind: --timeout"
    if wanted "$name"; then
        run 0 "${over[@]}" --timeout 4 sh -c "$patient" $word
        also "it took $ms ms" [ "$ms" -lt 14000 ]
        also "$(count_of $word) processes are left" gone $word 5
        want "$name" 124 'has passed: ending mp'
        sweep $word
    fi
    name="ucx-run --launcher $kind: TERM, and nobody is left"
    if wanted "$name"; then
        begin $word 3 "${over[@]}" sh -c "$patient" $word
        now
        on 0 kill -TERM "$runner"
        end
        also "it took $ms ms" [ "$ms" -lt 14000 ]
        also "$(count_of $word) processes are left" gone $word 5
        # mpirun's own code, and 0 of mpiexec.hydra, unless it stumbles over its proxies' end, or has heard of it: then the
        # wait status of its ranks, which SIGTERM ended
        case $kind-$rc in openmpi-1 | hydra-143 | hydra-255 | hydra-15) ;; *) also "code $rc" false ;; esac
        want "$name" $rc 'SIGTERM: passed on to mp'
        sweep $word
    fi
    name="ucx-run --launcher $kind: killed with -9, no rank survives it"
    if wanted "$name"; then
        begin $word 3 "${over[@]}" sh -c "$patient" $word
        on 0 kill -KILL "$runner"
        end
        also "$(count_of $word) processes are left" gone $word 12
        want "$name" 137
        sweep $word
    fi
    # Hydra gives rank 0 no more than it can swallow at a time; the other ranks of both had better not read.
    for to in default 2 none; do
        [ $kind = openmpi ] || [ $to = default ] || continue
        name="ucx-run --launcher $kind: standard input to $to"
        lines=$([ $kind = openmpi ] && echo 50000 || echo 500)
        # shellcheck disable=SC2016
        ! wanted "$name" || input_to "$name" $to 'R=${PMI_RANK-$OMPI_COMM_WORLD_RANK}; [ $R = 0 ] || [ -z "${PMI_RANK-}" ] || exec </dev/null; echo $R $(cat | cksum)' "$lines"
    done
    # shellcheck disable=SC2016
    files_of "ucx-run --launcher $kind: --output-filename" $kind 'R=${PMI_RANK-$OMPI_COMM_WORLD_RANK}; echo out $R; echo err $R >&2'
done
for kind in ssh slurm openmpi hydra prrte; do
    name="ucx-run --launcher $kind --dry-run: starts nothing, tells no secret"
    if wanted "$name"; then
        run 0 "$UCX_RUN" --launcher $kind -H "$H0:2,$H1:2" --dry-run /bin/sh -c "echo >$W/ran"
        case $kind in
        ssh | slurm) words=$kind ;;
        openmpi) words=mpirun ;;
        hydra) words=mpiexec.hydra ;;
        prrte) words=prterun ;;
        esac
        [ $kind != slurm ] || words=srun
        also "something ran" [ ! -e "$W/ran" ]
        also "it does not show $words" grep -q "$words" "$W/out"
        also "it shows the program's place" grep -q /bin/sh "$W/out"
        also "a secret is in it" [ "$(grep -cE '[0-9a-f]{64}' "$W/out")" = 0 ]
        want "$name" 0
    fi
done

# ---- exit codes ----
for kind in fork ssh slurm; do
    declare -n over=over_$kind
    name="ucx-run ($kind): the exit code of the first rank that failed, named with its host"
    if wanted "$name"; then
        # shellcheck disable=SC2016 # the rank's words
        run 0 "${over[@]}" sh -c 'case $RANK in 1) sleep 0.3; exit 5 ;; 2) sleep 0.9; exit 9 ;; *) sleep 20 ;; esac'
        also "it took $ms ms" [ "$ms" -lt 8000 ]
        want "$name" 5 "rank 1 .*$(host_of $kind 1).*exited with code 5"
    fi
    name="ucx-run ($kind): 128 + signal"
    if wanted "$name"; then
        # shellcheck disable=SC2016
        run 0 "${over[@]}" sh -c '[ $RANK != 2 ] || kill -9 $$; sleep 20'
        want "$name" 137 "rank 2 .*$(host_of $kind 2).*killed by signal 9 \(SIGKILL\)"
    fi
    name="ucx-run ($kind): a rank that exits 0 early ends nobody"
    if wanted "$name"; then
        # shellcheck disable=SC2016
        run 0 "${over[@]}" sh -c '[ $RANK != 1 ] || exit 0; sleep 0.5; echo late'
        also "the others were ended" [ "$(grep -c late "$W/out")" = 2 ]
        want "$name" 0
    fi
    name="ucx-run ($kind): a dead rank of a collective is named by the survivors, too"
    if wanted "$name"; then
        # shellcheck disable=SC2016
        run 0 "${over[@]}" sh -c "[ \$RANK != 1 ] || (sleep 4; kill -9 \$\$) & exec '$PERF' all_reduce -b 64K -e 64K -n 100000000 -c 0"
        want "$name" 137 'rank 1 .*SIGKILL' 'rank 1 died'
    fi
    name="ucx-run ($kind): no such program"
    if wanted "$name"; then
        run 0 "${over[@]}" /no/such/program
        want "$name" 127 '/no/such/program'
    fi
    name="ucx-run ($kind): --timeout"
    if wanted "$name"; then
        # again with more time where a busy machine has not started the ranks by then
        for limit in 4 20; do
            run 0 "${over[@]}" --timeout $limit sleep 60
            grep -q 'while the ranks were being started' "$W/err" || break
        done
        also "it took $ms ms" [ "$ms" -lt $((limit * 1000 + 8000)) ]
        want "$name" 124 'the ranks were doing'
    fi
    name="ucx-run ($kind): --timeout before anything has begun"
    if wanted "$name"; then
        run 0 "${over[@]}" --timeout 0.05 sleep 25
        also "it took $ms ms" [ "$ms" -lt 12000 ]
        want "$name" 124
    fi
    name="ucx-run ($kind): --max-restarts"
    if wanted "$name"; then
        rm -f "$W/tries"
        # shellcheck disable=SC2016
        run 0 "${over[@]}" --max-restarts 2 sh -c '[ $RANK != 1 ] || { echo x >>'"$W/tries"'; [ $(wc -l <'"$W/tries"') = 3 ]; }'
        also "it ran $(wc -l <"$W/tries") times" [ "$(wc -l <"$W/tries")" = 3 ]
        want "$name" 0 'restart 2 of 2'
    fi
done

# ---- signals ----
for kind in fork ssh slurm; do
    declare -n over=over_$kind
    word=gyre-launch-$kind-$$
    # Says that it is there, and goes on whatever it is told.
    # shellcheck disable=SC2016
    stubborn='for s in TERM USR1; do trap "echo got >'"$W"'/got.$RANK.$s" $s; done; trap "" INT; : >'"$W"'/here.$RANK; while :; do sleep 0.1; done'
    # As stubborn, but for rank 1, which fails once it is told to.
    # shellcheck disable=SC2016
    failing='[ $RANK != 1 ] || { : >'"$W"'/here.1; while [ ! -e '"$W"'/fail ]; do sleep 0.05; done; exit 3; }; '$stubborn
    got() { [ "$(find "$W" -name "got.*.$1" | wc -l)" = "$2" ]; } # SIGNAL RANKS
    # ucx-run's number in host 0: what was started, but for salloc, which waits for it
    of_runner() { if [ $kind = slurm ]; then on 0 pgrep -P "$runner" -x ucx-run; else echo "$runner"; fi; }

    name="ucx-run ($kind): TERM and USR1 reach every rank"
    if wanted "$name"; then
        # shellcheck disable=SC2016
        begin $word 3 "${over[@]}" sh -c 'trap "echo got >'"$W"'/got.$RANK.USR1" USR1; : >'"$W"'/here.$RANK; while :; do sleep 0.1; done' $word
        runner=$(of_runner)
        on 0 kill -USR1 "$runner"
        also "USR1 did not reach all" soon got USR1 3
        now
        on 0 kill -TERM "$runner"
        ends "$name" 143 0 8000
    fi
    name="ucx-run ($kind): a TERM that the ranks ignore: grace, KILL"
    if wanted "$name"; then
        begin $word 3 "${over[@]}" --kill-grace 1 sh -c "$stubborn" $word
        runner=$(of_runner)
        now
        on 0 kill -TERM "$runner"
        also "TERM did not reach all" soon got TERM 3
        ends "$name" 143 1000 8000 'did not end within the grace'
    fi
    name="ucx-run ($kind): after a failure the others get TERM, grace, KILL"
    if wanted "$name"; then
        begin $word 3 "${over[@]}" --kill-grace 1 sh -c "$failing" $word
        now
        : >"$W/fail"
        also "TERM did not reach the others" soon got TERM 2
        ends "$name" 3 1500 10000 "rank 1 .*$(host_of $kind 1).*exited with code 3"
        rm -f "$W/fail"
    fi
    name="ucx-run ($kind): the second INT kills now"
    if wanted "$name"; then
        begin $word 3 "${over[@]}" --kill-grace 30 sh -c "$stubborn" $word
        runner=$(of_runner)
        on 0 kill -INT "$runner"
        also "the first one was not noticed" soon grep -q 'once more kills' "$W/err"
        now
        on 0 kill -INT "$runner"
        ends "$name" 130 0 5000 'interrupted again'
    fi
    name="ucx-run ($kind): killed with -9, no rank survives it"
    if wanted "$name"; then
        begin $word 3 "${over[@]}" sh -c "$stubborn" $word
        runner=$(of_runner)
        now
        on 0 kill -KILL "$runner"
        also "processes are left after 5 s" gone $word 5
        ms=$(((${EPOCHREALTIME/[.,]/} - from) / 1000))
        sweep $word # a salloc that hangs would be waited for
        wait $job
        rc=0
        want "$name" 0
    fi
done
name="ucx-run (ssh): an agent killed with -9, its host's ranks go and are named"
if wanted "$name"; then
    word=gyre-launch-agent-$$
    # shellcheck disable=SC2016
    stubborn='trap "" TERM INT; : >'"$W"'/here.$RANK; while :; do sleep 0.1; done'
    begin $word 3 "${over_ssh[@]}" sh -c "$stubborn" $word
    agent=$(on 1 pgrep -o -f 'ucx-run.*agent')
    now
    on 1 kill -KILL "$agent"
    ends "$name" 125 0 15000 "host $H1 is lost"
fi

# ---- input and output ----
for kind in fork ssh slurm; do
    declare -n over=over_$kind
    for to in default 2 all none; do
        name="ucx-run ($kind): standard input to $to"
        # shellcheck disable=SC2016
        ! wanted "$name" || input_to "$name" $to 'echo $RANK $(cat | cksum)'
    done
    name="ucx-run ($kind): lines are whole, and tagged"
    if wanted "$name"; then
        # shellcheck disable=SC2016
        run 0 "${over[@]}" --tag sh -c 'for i in $(seq 2000); do echo "$RANK$RANK$RANK$RANK$RANK$RANK$RANK$RANK"; done'
        also "some are not" [ "$(grep -cE '^\[([0-2])\] \1{8}$' "$W/out")" = 6000 ]
        want "$name" 0
    fi
    # shellcheck disable=SC2016
    files_of "ucx-run ($kind): --output-filename" $kind 'echo out $RANK; echo err $RANK >&2'
done

# ---- secrets ----
for kind in fork ssh slurm openmpi hydra; do
    declare -n over=over_$kind
    name="ucx-run ($kind): the secret is on no command line and in no file that others can read"
    if wanted "$name"; then
        word=gyre-launch-secret-$$
        # shellcheck disable=SC2016
        begin $word 3 "${over[@]}" sh -c '(umask 077; echo $GYRE_SECRET >'"$W/secret"'); : >'"$W"'/here.$(hostname).$$; sleep 2' $word
        secret=$(cat "$W/secret")
        seen=$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -cFf "$W/secret")
        open=$(find /tmp /run /dev/shm /var/tmp -xdev -type f -perm /044 -newer "$W/runner" -size -1M -exec grep -lFf "$W/secret" {} + 2>/dev/null)
        now
        end
        also "there was none" [ ${#secret} = 64 ]
        also "$seen command lines have it" [ "$seen" = 0 ]
        also "it is in $open" [ -z "$open" ]
        want "$name" 0
    fi
done

# ---- a host that is cut off ----
for kind in ssh slurm; do
    declare -n over=over_$kind
    name="ucx-run ($kind): a host cut off silently is the culprit, not its victims"
    if wanted "$name"; then
        begin gyre-launch-cut-$$ 3 "${over[@]}" sh -c ": >$W/here.\$RANK; exec '$PERF' all_reduce -b 64K -e 64K -n 100000000 -c 0"
        sleep 1 # they are in the middle of it
        now
        "$NETHOSTS" cut 2
        end
        "$NETHOSTS" heal 2
        also "it took $ms ms" [ "$ms" -lt 9000 ]
        want "$name" 125 "host $H2 is lost" "rank 2 \($H2\) is lost with its host"
    fi
    # Of a host that nobody reaches the agent must see to it: four times --lost-after, and the grace.
    name="ucx-run ($kind): the ranks of a host that is cut off end, too"
    if wanted "$name"; then
        word=gyre-launch-alone-$$
        # shellcheck disable=SC2016
        begin $word 3 "${over[@]}" --lost-after 2 sh -c 'trap "" TERM INT; : >'"$W"'/here.$RANK; while :; do sleep 0.1; done' $word
        now
        "$NETHOSTS" cut 2
        end
        also "it took $ms ms" [ "$ms" -lt 9000 ]
        also "$(count_of $word) processes are left there" gone $word 15
        "$NETHOSTS" heal 2
        want "$name" 125 "host $H2 is lost"
        sweep $word
    fi
done
