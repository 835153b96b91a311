#!/bin/sh
# Slurm Epilog: a GPU that failed during the job drains its node before the next one begins. The job itself is over, so
# this never ends with an error.
#
#   slurm.conf:  Epilog=/etc/slurm/gpuwatch/epilog.sh
#                HealthCheckProgram=/etc/slurm/gpuwatch/epilog.sh    between jobs, too
#                HealthCheckInterval=60
set -u
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/bin  # Slurm sets none
export PATH
[ -z "${SLURM_JOB_ID:-}" ] || rm -f "/run/gpuwatch-jobs/$SLURM_JOB_ID"
command -v gpuwatch >/dev/null || exit 0

said=$(timeout "${GPUWATCH_TIMEOUT:-10}" gpuwatch status --nagios 2>/dev/null)
[ $? -eq 2 ] || exit 0

node=${SLURMD_NODENAME:-$(hostname -s)}
# a reason that is there already, a person's perhaps, stays
scontrol show node "$node" | grep -q 'Reason=' || scontrol update nodename="$node" state=drain reason="gpuwatch: $said"
exit 0
