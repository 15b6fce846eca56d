#!/bin/sh
# Prolog of slurm.conf, which runs as root: gives the job's user a directory of rings that no other
# user can list, fill or take, a tmpfs of its own size. The agent counts in it that user's files alone.
rings=${RANKSCOPE_RING_DIR:-/run/rankscope}
own=$rings/${SLURM_JOB_UID:?is set by slurmd}
[ -d "$own" ] && [ ! -L "$own" ] && [ "$(stat -c %u "$own")" = "$SLURM_JOB_UID" ] && exit 0
mkdir -p "$rings" && mkdir -m 0700 "$own" || exit 0
mount -t tmpfs -o "size=${RANKSCOPE_RING_SIZE:-512m},nr_inodes=4096,mode=0700,nosuid,nodev,noexec" \
    rankscope "$own" 2>/dev/null
chown "$SLURM_JOB_UID" "$own"
exit 0
