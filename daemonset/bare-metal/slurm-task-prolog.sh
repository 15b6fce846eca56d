#!/bin/sh
# TaskProlog of slurm.conf: gives every task the probe, in front of the PYTHONPATH it has. SLURM puts
# what is printed as `export NAME=value` into the task's environment. A task starts without the probe
# where the probe is not installed, or where its user set RANKSCOPE_PROBE=0.
probe=${RANKSCOPE_PROBE_DIR:-/opt/rankscope/probe}
[ "${RANKSCOPE_PROBE:-1}" != 0 ] || exit 0
[ -f "$probe/rankscope_probe.py" ] || exit 0
printf 'export PYTHONPATH=%s%s\n' "$probe" "${PYTHONPATH:+:$PYTHONPATH}"
printf 'export RANKSCOPE_RING_DIR=%s\n' "${RANKSCOPE_RING_DIR:-/run/rankscope}"
exit 0
