# tests/launch/engines.sh: gyre-perf under launchers that know nothing of Gyre; sourced by check.
# shellcheck shell=bash disable=SC2154 # its variables
# SPDX-License-Identifier: Apache-2.0

# ---- Slurm ----
for kind in pmix pmi2; do
    name="srun --mpi=$kind, 3 hosts x 2"
    if wanted "$name"; then
        run 0 srun --mpi=$kind -N3 --ntasks-per-node=2 "${perf[@]}"
        right "$name" 6 3
    fi
    name="srun --mpi=$kind, 1 host x 3"
    if wanted "$name"; then
        run 0 srun --mpi=$kind -N1 -n3 "${perf[@]}"
        right "$name" 3 1
    fi
done
name="srun --mpi=none, 3 hosts x 2, GYRE_SECRET"
if wanted "$name"; then
    GYRE_SECRET=$(new_secret) run 0 srun -N3 --ntasks-per-node=2 "${perf[@]}"
    right "$name" 6 3
fi
name="srun --mpi=none, 1 host x 3"
if wanted "$name"; then
    run 0 srun -N1 -n3 "${perf[@]}"
    right "$name" 3 1
fi
name="srun --mpi=none, 2 hosts, no secret: refused"
if wanted "$name"; then
    run 0 srun -N2 -n2 "${perf[@]}"
    want "$name" 3 'GYRE_SECRET is not set' 'mpi=pmi2'
fi
name="srun --mpi=none, two steps at once"
if wanted "$name"; then
    step="srun --exact -N2 -n2 ${perf[*]}"
    GYRE_SECRET=$(new_secret) batch "-N2 --ntasks-per-node=2" "$step >$W/step.0 & $step >$W/step.1 & wait -n && wait -n && cat $W/step.*"
    also "not both were right" [ "$(grep -c 'values : 0 OK' "$W/out")" = 2 ]
    want "$name" 0
fi
name="a tool in a batch script is alone"
if wanted "$name"; then
    batch "-N2 -n4" "${perf[*]}"
    right "$name" 1 1
fi

# ---- Open MPI ----
"$NETHOSTS" hostfile openmpi 2 >"$W/hosts.openmpi"
mpirun=(mpirun.openmpi --allow-run-as-root --oversubscribe)
name="mpirun (Open MPI) over ssh, 3 hosts x 2"
if wanted "$name"; then
    run 0 "${mpirun[@]}" --hostfile "$W/hosts.openmpi" -np 6 "${perf[@]}"
    right "$name" 6 3
fi
name="mpirun (Open MPI), 1 host x 3"
if wanted "$name"; then
    run 0 "${mpirun[@]}" -np 3 "${perf[@]}"
    right "$name" 3 1
fi
name="mpirun (Open MPI), 1 host x 3, its variables alone"
if wanted "$name"; then
    run 0 "${mpirun[@]}" -np 3 env -u PMIX_NAMESPACE -u PMIX_RANK "${perf[@]}"
    right "$name" 3 1
fi
name="mpirun (Open MPI), 3 hosts, its variables alone and GYRE_ROOT"
if wanted "$name"; then
    GYRE_ROOT=$H0:29700 GYRE_SECRET=$(new_secret) run 0 "${mpirun[@]}" --hostfile "$W/hosts.openmpi" -np 6 -x GYRE_ROOT \
        -x GYRE_SECRET env -u PMIX_NAMESPACE -u PMIX_RANK "${perf[@]}"
    right "$name" 6 3
fi
# Inside an allocation ranks carry the daemons' SLURM_PROCID.
name="mpirun (Open MPI) in a Slurm allocation, 2 hosts x 2"
if wanted "$name"; then
    batch "-N2 --ntasks-per-node=2" "${mpirun[*]} -np 4 --map-by ppr:2:node ${perf[*]}"
    right "$name" 4 2
fi

# ---- Hydra ----
"$NETHOSTS" hostfile mpich 2 >"$W/hosts.mpich"
name="mpiexec.hydra over ssh, 3 hosts x 2"
if wanted "$name"; then
    run 0 mpiexec.hydra -launcher ssh -f "$W/hosts.mpich" -n 6 "${perf[@]}"
    right "$name" 6 3
fi
name="mpiexec.hydra, 1 host x 3"
if wanted "$name"; then
    run 0 mpiexec.hydra -launcher fork -n 3 "${perf[@]}"
    right "$name" 3 1
fi
name="mpiexec.hydra in a Slurm allocation, 2 hosts x 2"
if wanted "$name"; then
    batch "-N2 --ntasks-per-node=2" "mpiexec.hydra -n 4 -ppn 2 ${perf[*]}"
    right "$name" 4 2
fi
name="mpiexec.hydra: a secret that rank 0 makes is on no command line"
if wanted "$name"; then
    # Thirty looks: how many command lines held a secret in all, and how often both ranks of this host were there.
    run 0 sh -c "mpiexec.hydra -launcher ssh -f $W/hosts.mpich -n 6 ${perf[*]} >$W/perf & engine=\$!
        secrets=0 there=0 looks=0
        while [ \$looks -lt 30 ]; do
            [ \$(pgrep -fc '^$PERF ') != 2 ] || there=\$((there + 1))
            secrets=\$((secrets + \$(cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -cE '[0-9a-f]{64}')))
            looks=\$((looks + 1))
            sleep 0.05
        done
        wait \$engine || exit
        echo \$secrets \$there"
    read -r secrets there <"$W/out"
    also "$secrets command lines held a secret" [ "$secrets" = 0 ]
    also "the ranks were never seen" [ "${there:-0}" -gt 0 ]
    cat "$W/perf" >"$W/out"
    right "$name" 6 3
fi

# ---- MPI and Gyre in one program ----
for mpi in openmpi mpich; do
    if ! command -v mpicc.$mpi >/dev/null; then
        skip "MPI ($mpi) beside Gyre" "no mpicc.$mpi"
        continue
    fi
    name="MPI ($mpi) beside Gyre"
    wanted "$name" || continue
    if ! mpicc.$mpi -Iinclude "$HERE/beside_mpi.c" -o "$W/beside.$mpi" -L"$B/lib" -lgyre -Wl,-rpath,"$B/lib" \
        >"$W/out" 2>"$W/err"; then
        say "$name" "does not compile"
        continue
    fi
    # m, M: MPI_Init, MPI_Finalize; g, G: gyre_init, gyre_finalize; each with an all-reduce
    for order in gmMG gmGM mgGM mgMG gG mM; do
        if [ $mpi = openmpi ]; then
            run 0 "${mpirun[@]}" -np 3 "$W/beside.$mpi" $order
        else
            run 0 mpiexec.hydra -n 3 "$W/beside.$mpi" $order
        fi
        also "wrong sums" [ "$(sort -u "$W/out")" = 6 ]
        want "$name, $order" 0
    done
done

# ---- MPI programs on Gyre, over hosts ----
# MPICH's ranks would wait for time slices of each other: tests/mpi/yield.c
gcc -shared -fPIC -O2 -o "$W/yield.so" tests/mpi/yield.c -ldl
"$NETHOSTS" hostfile openmpi 1 >"$W/one.openmpi"
"$NETHOSTS" hostfile mpich 1 >"$W/one.mpich"
for mpi in openmpi mpich; do
    name="gyre-mpi ($mpi), 3 hosts"
    wanted "$name" || continue
    if [ ! -e "$B/lib/libgyre-mpi-$mpi.so" ]; then
        skip "$name" "no libgyre-mpi-$mpi.so: make mpi"
        continue
    fi
    if ! mpicc.$mpi -O1 -pthread tests/bindings/mpi_calls.c -o "$W/calls.$mpi" >"$W/out" 2>"$W/err"; then
        say "$name" "does not compile"
        continue
    fi
    start=("${mpirun[@]}" --hostfile "$W/one.openmpi" -np 3)
    [ $mpi = openmpi ] || start=(mpiexec.hydra -launcher ssh -f "$W/one.mpich" -n 3 env LD_PRELOAD="$W/yield.so")
    run 0 "${start[@]}" hostname
    also "not on 3 hosts" [ "$(sort -u "$W/out" | wc -l)" = 3 ]
    want "$name: hosts" 0
    for part in calls requests; do
        DEADLINE=$([ $mpi = mpich ] && echo 60 || echo 120) run 0 "${start[@]}" "$W/calls.$mpi" $part
        grep ' 0 failed$' "$W/out" >"$W/out.without"
        # MPICH 4.0.2 without gyre-mpi often does not return from MPI_Finalize over several hosts.
        [ "$mpi $rc" != "mpich 124" ] || rc=0
        also "no results" [ -s "$W/out.without" ]
        want "$name, $part: without it" 0
        DEADLINE=120 run 0 "${start[@]}" env GYRE_MPI_AFTER=0 GYRE_MPI_REPORT=1 "$B/bin/gyre-mpi" "$W/calls.$mpi" $part
        also "other output: $(diff "$W/out.without" "$W/out" | head -n 3)" cmp -s "$W/out.without" "$W/out"
        taken=('^MPI_Allreduce' '^MPI_Bcast' '^MPI_Alltoallv')
        [ $part = calls ] || taken=('^MPI_Iallreduce' '^MPI_Ibcast' '^MPI_Ialltoallv')
        want "$name, $part" 0 "${taken[@]/%/ +[1-9]}"
    done
done

# ---- torchrun ----
name="torchrun, 1 host x 3"
if wanted "$name"; then
    DEADLINE=120 run 0 "$HERE/torchrun" --no_python --nproc_per_node 3 "${perf[@]}"
    if [ "$rc" = 77 ] && grep -q "^skipped: " "$W/out"; then skip "$name" "$(cat "$W/out")"; else right "$name" 3 1; fi
fi
name="torchrun, 2 hosts x 2, GYRE_SECRET"
if wanted "$name"; then
    torch=("$HERE/torchrun" --no_python --nproc_per_node 2 --nnodes 2 --master_addr "$H0" --master_port 29500)
    secret=$(new_secret)
    GYRE_SECRET=$secret timeout -k 5 120 "$NETHOSTS" exec 1 -- "${torch[@]}" --node_rank 1 "${perf[@]}" >"$W/out.1" 2>&1 &
    DEADLINE=120 GYRE_SECRET=$secret run 0 "${torch[@]}" --node_rank 0 "${perf[@]}"
    wait $!
    if [ "$rc" = 77 ] && grep -q "^skipped: " "$W/out"; then skip "$name" "$(cat "$W/out")"; else right "$name" 4 2; fi
fi
# One torchrun per host, started by srun: SLURM_PROCID and the rest number the torchruns.
name="torchrun under srun, 2 hosts x 2, GYRE_SECRET"
if wanted "$name"; then
    GYRE_SECRET=$(new_secret) DEADLINE=120 run 0 srun --mpi=pmix -N2 --ntasks-per-node=1 sh -c \
        "exec $HERE/torchrun --no_python --nproc_per_node 2 --nnodes 2 --node_rank \$SLURM_PROCID --master_addr $H0 --master_port 29600 ${perf[*]}"
    if [ "$rc" = 77 ] && grep -q "^skipped: " "$W/out"; then skip "$name" "$(cat "$W/out")"; else right "$name" 4 2; fi
fi
name="torchrun's variables, 3 hosts x 2, GYRE_SECRET"
if wanted "$name"; then
    secret=$(new_secret)
    pids=()
    for r in 1 2 3 4 5; do
        timeout -k 5 30 "$NETHOSTS" exec $((r / 2)) -- env GYRE_SECRET="$secret" RANK=$r WORLD_SIZE=6 LOCAL_RANK=$((r % 2)) \
            LOCAL_WORLD_SIZE=2 MASTER_ADDR="$H0" MASTER_PORT=29550 "${perf[@]}" >"$W/out.$r" 2>&1 </dev/null &
        pids+=($!)
    done
    run 0 env GYRE_SECRET="$secret" RANK=0 WORLD_SIZE=6 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR="$H0" MASTER_PORT=29550 "${perf[@]}"
    for pid in "${pids[@]}"; do also "another rank has failed" wait "$pid"; done
    right "$name" 6 3
fi
name="torchrun's variables, 2 hosts, no secret: refused"
if wanted "$name"; then
    run 0 env RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 MASTER_ADDR="$H0" MASTER_PORT=29560 "${perf[@]}"
    want "$name" 3 'GYRE_SECRET is not set'
fi

# ---- PMIx's types, as comm/launch/pmix.h declares them ----
name="comm/launch/pmix.h agrees with pmix.h"
if wanted "$name"; then
    rc=0
    # shellcheck disable=SC2046 # words
    gcc -std=gnu17 -fsyntax-only -I. -Iinclude $(pkg-config --cflags pmix) "$HERE/pmix_layout.c" >"$W/out" 2>"$W/err" || rc=$?
    want "$name" 0
fi
