#!/bin/sh
# Slurm Prolog: no job begins on a node with a failed GPU. The node is drained with gpuwatch's words as the reason and
# Slurm requeues the job. Degraded is no reason, and not knowing is none either. The job's account and partition are
# noted for the agent (sources.slurm_jobs) until its epilog.
#
#   slurm.conf:  Prolog=/etc/slurm/gpuwatch/prolog.sh
#                PrologFlags=Alloc                               before the job begins, not before its first step
#                SchedulerParameters=nohold_on_prolog_fail       else the requeued job is held until somebody releases it
#
# Give the node back yourself when it is well again: scontrol update nodename=NODE state=resume
set -u
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin  # Slurm sets none
export PATH
jobs=/run/gpuwatch-jobs
if [ -n "${SLURM_JOB_ID:-}" ]; then
    umask 022
    mkdir -p "$jobs" &&
        printf 'account=%s\npartition=%s\n' "${SLURM_JOB_ACCOUNT:-}" "${SLURM_JOB_PARTITION:-}" >"$jobs/$SLURM_JOB_ID"
fi
command -v gpuwatch >/dev/null || exit 0

said=$(timeout "${GPUWATCH_TIMEOUT:-10}" gpuwatch status --nagios 2>/dev/null)
[ $? -eq 2 ] || exit 0

node=${SLURMD_NODENAME:-$(hostname -s)}
# a reason that is there already, a person's perhaps, stays
scontrol show node "$node" | grep -q 'Reason=' || scontrol update nodename="$node" state=drain reason="gpuwatch: $said"
echo "$said" >&2
exit 1
