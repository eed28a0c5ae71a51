# tests/launch/pods.sh: Kubernetes' two contracts, as plain processes with the variables and names that a pod would find; sourced by check.
# shellcheck shell=bash disable=SC2154 # its variables
# SPDX-License-Identifier: Apache-2.0

# An Indexed Job: one pod is one rank; the Service's name of pod 0 comes late.
name="Indexed Job, 3 pods, the name of pod 0 comes late"
if wanted "$name"; then
    secret=$(new_secret)
    pids=()
    pod=(env GYRE_SIZE=3 GYRE_ROOT=demo-0.demo:29600 GYRE_SECRET="$secret")
    for r in 1 2; do
        timeout -k 5 40 "$NETHOSTS" exec $r -- "${pod[@]}" JOB_COMPLETION_INDEX=$r "${perf[@]}" >"$W/out.$r" 2>&1 </dev/null &
        pids+=($!)
    done
    (
        sleep 2
        for r in 0 1 2; do on $r sh -c "echo '$("$NETHOSTS" ip 0) demo-0.demo' >>/etc/hosts"; done
    ) &
    run 0 "${pod[@]}" JOB_COMPLETION_INDEX=0 "${perf[@]}"
    for pid in "${pids[@]}"; do also "another rank has failed" wait "$pid"; done
    right "$name" 3 3
fi
name="Indexed Job without a secret: refused"
if wanted "$name"; then
    run 0 env JOB_COMPLETION_INDEX=1 GYRE_SIZE=3 GYRE_ROOT=demo-0.demo:29600 "${perf[@]}"
    want "$name" 3 'GYRE_SECRET is not set'
fi
name="Indexed Job whose manifest lacks GYRE_SIZE: refused"
if wanted "$name"; then
    run 0 env JOB_COMPLETION_INDEX=1 "${perf[@]}"
    want "$name" 3 'GYRE_SIZE is not set' 'Indexed Job'
fi

# The MPI Operator's launcher pod: a hostfile, a key, and variables in place of flags.
"$NETHOSTS" hostfile openmpi 2 >"$W/hosts.openmpi"
"$NETHOSTS" hostfile mpich 2 >"$W/hosts.mpich"
name="MPI Operator's launcher pod, Open MPI"
if wanted "$name"; then
    run 0 env K_MPI_JOB_ROLE=launcher OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        OMPI_MCA_orte_default_hostfile="$W/hosts.openmpi" OMPI_MCA_orte_keep_fqdn_hostnames=true \
        OMPI_MCA_plm_rsh_args="-o ConnectionAttempts=10" mpirun.openmpi -np 6 "${perf[@]}"
    right "$name" 6 3
fi
name="MPI Operator's launcher pod, MPICH"
if wanted "$name"; then
    run 0 env K_MPI_JOB_ROLE=launcher HYDRA_HOST_FILE="$W/hosts.mpich" HYDRA_LAUNCH_EXTRA_ARGS="-o ConnectionAttempts=10" \
        HYDRA_LAUNCHER=ssh mpiexec.hydra -n 6 "${perf[@]}"
    right "$name" 6 3
fi
