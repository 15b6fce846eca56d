"""Runs a program as a container runtime would: read-only root, few capabilities, RuntimeDefault.

    unshare --mount python sandbox.py --writable DIR --keep syslog -- PROGRAM ARGUMENTS...

With --run FOLDER a copy of it is all that /run holds: files of root and of --group, as the kubelet
lays out secrets.

The filter is made from what the profile of container runtimes documents as blocked
(https://docs.docker.com/engine/security/seccomp, and containerd's contrib/seccomp for what came
later), on x86-64. Linux alone, as root.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import pathlib
import shutil
import struct
import sys

X86_64 = 0xC000003E  # AUDIT_ARCH_X86_64
NAMESPACES = 0x7E020000  # CLONE_NEW* of clone(2), which may make none
LAST_KNOWN = 462  # newer system calls are refused by profiles that do not know them

BLOCKED = {
    "ptrace": 101,
    "syslog": 103,
    "uselib": 134,
    "ustat": 136,
    "sysfs": 139,
    "vhangup": 153,
    "pivot_root": 155,
    "_sysctl": 156,
    "chroot": 161,
    "acct": 163,
    "settimeofday": 164,
    "mount": 165,
    "umount2": 166,
    "swapon": 167,
    "swapoff": 168,
    "reboot": 169,
    "sethostname": 170,
    "setdomainname": 171,
    "iopl": 172,
    "ioperm": 173,
    "create_module": 174,
    "init_module": 175,
    "delete_module": 176,
    "get_kernel_syms": 177,
    "query_module": 178,
    "quotactl": 179,
    "nfsservctl": 180,
    "lookup_dcookie": 212,
    "clock_settime": 227,
    "mbind": 237,
    "set_mempolicy": 238,
    "get_mempolicy": 239,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "unshare": 272,
    "move_pages": 279,
    "perf_event_open": 298,
    "fanotify_init": 300,
    "open_by_handle_at": 304,
    "clock_adjtime": 305,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "finit_module": 313,
    "kexec_file_load": 320,
    "bpf": 321,
    "userfaultfd": 323,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
}
UNLOCKED_BY = {"syslog": {"syslog"}, "sys_ptrace": {"ptrace", "kcmp", "process_vm_readv"}}
"""What the profile allows to holders of a capability."""

# <linux/bpf_common.h>, <linux/seccomp.h>, <linux/prctl.h>, <linux/mount.h>
LOAD, JUMP_EQUAL, JUMP_GREATER, JUMP_SET, RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18

LIBC = ctypes.CDLL(None, use_errno=True)


def program(kept: set[str]) -> bytes:
    """Return the filter's instructions, each of which jumps over the refusal behind it or not."""
    unlocked = {name for capability in kept for name in UNLOCKED_BY.get(capability, ())}
    made = [instruction(LOAD, 4), instruction(JUMP_EQUAL, X86_64, 1), instruction(RETURN, KILL)]
    made += [instruction(LOAD, 0), instruction(JUMP_EQUAL, 435, 0, 1)]
    made += [instruction(RETURN, ERRNO | errno.ENOSYS)]  # clone3: its flags lie behind a pointer
    for name, number in BLOCKED.items():
        if name not in unlocked:
            made += [
                instruction(JUMP_EQUAL, number, 0, 1),
                instruction(RETURN, ERRNO | errno.EPERM),
            ]
    made += [instruction(JUMP_GREATER, LAST_KNOWN, 0, 1), instruction(RETURN, ERRNO | errno.ENOSYS)]
    made += [instruction(JUMP_EQUAL, 56, 0, 3), instruction(LOAD, 16)]  # clone
    made += [instruction(JUMP_SET, NAMESPACES, 0, 1), instruction(RETURN, ERRNO | errno.EPERM)]
    return b"".join([*made, instruction(RETURN, ALLOW)])


def instruction(code: int, value: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jump_true, jump_false, value)


def load_filter(kept: set[str]) -> None:
    code = program(kept)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    checked(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    checked(LIBC.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.c_char_p(head), 0, 0))


def lay_out(run: str, group: int) -> None:
    """Put files in place of what /run holds."""
    checked(LIBC.mount(b"tmpfs", b"/run", b"tmpfs", 0, b"size=16m,mode=755"))
    shutil.copytree(run, "/run", dirs_exist_ok=True)
    for path in pathlib.Path("/run").rglob("*"):
        os.chown(path, 0, group)


def open_up(paths: list[str]) -> None:
    """Let any user reach what lies below a directory of root's own: interpreter and checkout."""
    closed: dict[pathlib.Path, set[pathlib.Path]] = {}
    for path in filter(os.path.exists, paths):
        whole = pathlib.Path(path).resolve()
        barred = [parent for parent in reversed(whole.parents) if not parent.stat().st_mode & 1]
        for parent in barred[:1]:
            child = parent / whole.relative_to(parent).parts[0]
            closed.setdefault(parent, set()).add(child)
    for parent, children in closed.items():
        held = {child: os.open(child, os.O_PATH) for child in children}
        checked(LIBC.mount(b"tmpfs", os.fsencode(parent), b"tmpfs", 0, b"size=1m,mode=755"))
        for child, descriptor in held.items():
            child.mkdir()
            source = f"/proc/self/fd/{descriptor}".encode()
            checked(LIBC.mount(source, os.fsencode(child), None, MS_BIND | MS_REC, None))


def freeze_root(writable: str, run: str, user: int, group: int) -> None:
    """Make every mount read-only but a fresh tmpfs."""
    checked(LIBC.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))
    if run:
        lay_out(run, group)
    if user:
        open_up([sys.executable, __file__, *sys.path, *os.environ.get("PYTHONPATH", "").split(":")])
    with pathlib.Path("/proc/self/mounts").open(encoding="utf-8") as table:
        points = [line.split()[1] for line in table]
    for point in points:
        where = point.encode().decode("unicode_escape").encode()
        LIBC.mount(None, where, None, MS_REMOUNT | MS_BIND | MS_RDONLY, None)  # some cannot be
    checked(LIBC.mount(b"tmpfs", writable.encode(), b"tmpfs", 0, b"size=16m"))


def checked(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--writable")
    parser.add_argument("--keep", default="")
    parser.add_argument("--run", default="")
    parser.add_argument("--user", type=int, default=0)
    parser.add_argument("--group", type=int, default=0)
    parser.add_argument("--filter-only", action="store_true")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    kept = set(filter(None, options.keep.split(",")))
    if options.filter_only:
        load_filter(kept)
        os.execvp(options.command[0], options.command)
    freeze_root(options.writable, options.run, options.user, options.group)
    sets = ",".join(("-all", *(f"+{name}" for name in sorted(kept))))
    drop = ["--no-new-privs", "--inh-caps=-all", f"--bounding-set={sets}"]
    if options.user:
        drop += [f"--reuid={options.user}", f"--regid={options.user}", f"--groups={options.group}"]
    again = [sys.executable, __file__, "--filter-only", f"--keep={options.keep}", "--"]
    setpriv = shutil.which("setpriv") or "setpriv"
    os.execv(setpriv, [setpriv, *drop, *again, *options.command])


if __name__ == "__main__":
    main()
