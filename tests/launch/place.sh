# tests/launch/place.sh: where ucx-run's ranks go and what they find there, under each launcher; sourced by check.
# shellcheck shell=bash disable=SC2154 # its variables
# SPDX-License-Identifier: Apache-2.0

"$NETHOSTS" hostfile openmpi 2 | sed 's/$/ max_slots=4 # as Open MPI writes it/' >"$W/hosts.slots"
"$NETHOSTS" hostfile mpich 2 >"$W/hosts.colons"
for kind in ssh slurm openmpi hydra; do
    launch=("$UCX_RUN" --launcher "$kind")
    [ $kind != slurm ] || launch=(salloc -Q -N3 --ntasks-per-node=2 "${launch[@]}")
    # Each rank and its host, in the order of the ranks.
    # shellcheck disable=SC2016 # the ranks' words
    where='echo ${RANK-${PMI_RANK-$OMPI_COMM_WORLD_RANK}} $(hostname)'
    placed() { # NAME "HOST OF RANK 0, OF RANK 1 ..." ARGUMENTS...
        local name="ucx-run --launcher $kind: $1" r=0 i expected=''
        wanted "$name" || return 0
        for i in $2; do
            expected+="$r $(host "$i");"
            r=$((r + 1))
        done
        run 0 "${launch[@]}" "${@:3}" sh -c "$where"
        also "it came as $(sort -n "$W/out" | tr '\n' ';')" [ "$(sort -n "$W/out" | tr '\n' ';')" = "$expected" ]
        want "$name" 0
    }
    placed "slots of -H" "0 0 1 2" -H "$H0:2,$H1,$H2"
    placed "--map-by node" "0 1 2 0" -H "$H0:2,$H1,$H2" --map-by node
    placed "-n below the slots" "0 0 1" -np 3 -H "$H0:2,$H1:2"
    placed "-N" "0 0 1 1 2 2" -N 2 -H "$H0,$H1,$H2"
    placed "--map-by ppr:1:node" "0 1" --map-by ppr:1:node -H "$H0:2,$H1:2"
    placed "--hostfile with slots=" "0 0 1 1 2 2" --hostfile "$W/hosts.slots"
    placed "--hostfile with colons" "0 0 1 1 2 2" --hostfile "$W/hosts.colons"

    name="ucx-run --launcher $kind: -x and --wdir"
    if wanted "$name"; then
        mkdir -p "$W/a folder"
        # shellcheck disable=SC2016
        NCCL_TEST=2 run 0 "${launch[@]}" -H "$H0,$H1,$H2" -x ALPHA='a  b' -x 'NCCL_*' --wdir "$W/a folder" sh -c 'echo "$ALPHA|$NCCL_TEST|$(pwd)"'
        also "it came as $(sort -u "$W/out")" [ "$(sort -u "$W/out")" = "a  b|2|$W/a folder" ]
        also "not from all" [ "$(wc -l <"$W/out")" = 3 ]
        want "$name" 0
    fi
    name="ucx-run --launcher $kind: --bind-to core, --report-bindings"
    if wanted "$name"; then
        run 0 "${launch[@]}" -H "$H0,$H1,$H2" --bind-to core --report-bindings grep Cpus_allowed_list /proc/self/status
        also "a rank may run on several cores" [ "$(grep -cE '^Cpus_allowed_list:[[:space:]]+[0-9]+$' "$W/out")" = 3 ]
        case $kind in
        ssh | slurm) want "$name" 0 "rank 0 .*$H0.* bound to core" "rank 2 .*$H2.* bound to core" ;;
        openmpi) want "$name" 0 'rank 0 bound to' 'rank 2 bound to' ;;
        hydra) want "$name" 0 ;; # says it on its output, in its own way
        esac
    fi
done
# The launcher pod of Kubernetes' MPI Operator has no flags, but a hostfile in its environment.
name="ucx-run in the MPI Operator's launcher pod"
if wanted "$name"; then
    run 0 env K_MPI_JOB_ROLE=launcher OMPI_MCA_orte_default_hostfile="$W/hosts.slots" OMPI_MCA_plm_rsh_args="-o ConnectionAttempts=10" \
        "$UCX_RUN" "${perf[@]}"
    right "$name" 6 3
fi
