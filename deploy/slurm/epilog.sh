#!/bin/sh
# Slurm Epilog: a GPU that failed during the job drains its node before the next one begins. The job itself is over, so
# this never ends with an error.
#
#   slurm.conf:  Epilog=/etc/slurm/gpuwatch/epilog.sh
#                HealthCheckProgram=/etc/slurm/gpuwatch/epilog.sh    between jobs, too
#                HealthCheckInterval=60
set -u
command -v gpuwatch >/dev/null || exit 0

said=$(timeout "${GPUWATCH_TIMEOUT:-10}" gpuwatch status --nagios 2>/dev/null)
if [ $? -eq 2 ]; then
    scontrol update nodename="${SLURMD_NODENAME:-$(hostname -s)}" state=drain reason="gpuwatch: $said"
fi
exit 0
