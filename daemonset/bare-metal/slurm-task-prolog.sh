#!/bin/sh
# TaskProlog of slurm.conf: gives every task the probe, in front of the PYTHONPATH it has. SLURM puts
# what is printed as `export NAME=value` into the task's environment. A task starts without the probe
# where the probe is not installed, or where its user set RANKSCOPE_PROBE=0.
probe=${RANKSCOPE_PROBE_DIR:-/opt/rankscope/probe}
[ "${RANKSCOPE_PROBE:-1}" != 0 ] || exit 0
[ -f "$probe/rankscope_probe.py" ] || exit 0
printf 'export PYTHONPATH=%s%s\n' "$probe" "${PYTHONPATH:+:$PYTHONPATH}"
# The user's own directory, which slurm-prolog.sh has made; else the one that all users share.
rings=${RANKSCOPE_RING_DIR:-/run/rankscope}
own=$rings/$(id -u)
if [ -d "$own" ] && [ "$(stat -c %u "$own")" = "$(id -u)" ]; then rings=$own; fi
printf 'export RANKSCOPE_RING_DIR=%s\n' "$rings"
exit 0
