#!/bin/sh
# Slurm Prolog: no job begins on a node with a failed GPU. The node is drained with gpuwatch's words as the reason and
# Slurm requeues the job. Degraded is no reason, and not knowing is none either.
#
#   slurm.conf:  Prolog=/etc/slurm/gpuwatch/prolog.sh
#
# Give the node back yourself when it is well again: scontrol update nodename=NODE state=resume
set -u
command -v gpuwatch >/dev/null || exit 0

said=$(timeout "${GPUWATCH_TIMEOUT:-10}" gpuwatch status --nagios 2>/dev/null)
[ $? -eq 2 ] || exit 0

scontrol update nodename="${SLURMD_NODENAME:-$(hostname -s)}" state=drain reason="gpuwatch: $said"
echo "$said" >&2
exit 1
