"""Lines about memory, processes, disks and the kernel itself: pure patterns and what they mean.

Formats: mm/oom_kill.c (4.x to 6.x), kernel/hung_task.c, kernel/watchdog.c, RCU's stall warnings,
edac_mc.c, block/blk-core.c, fs/ext4, fs/xfs, drivers/nvme/host, net/sunrpc.
"""

from __future__ import annotations

import re

from rankscope_agent.kernel.rule import Rule, plain

ERROR, OOM, NVME = "rror", "of memory", "nvme nvme"
_COMM = r"\((?P<comm>.{0,64}?)\)(?:,| |$)"
_DISK = r"(?P<device>[\w!/.-]{1,32})"

_DISK_ERROR = plain("disk_error", "storage", "drain", "error")
_FS_ERROR = plain("filesystem_error", "storage", "drain", "error")

RULES: tuple[Rule, ...] = (
    # Up to kernel 4.x the first of two lines says `Kill process N (comm) score M or sacrifice`.
    Rule(
        OOM,
        re.compile(
            rf"Memory cgroup out of memory: Kill(?:ed)? process (?P<pid>\d{{1,9}}),? {_COMM}"
        ),
        plain("oom_kill", "app", "restart_app", "error"),
    ),
    Rule(
        OOM,
        re.compile(
            rf"Out of memory(?: \(\w+\))?: Kill(?:ed)? process (?P<pid>\d{{1,9}}),? {_COMM}"
        ),
        plain("oom_kill", "host_memory", "restart_app", "error"),
    ),
    Rule(
        "oom-kill",
        re.compile(
            r"oom-kill:constraint=CONSTRAINT_MEMCG,.*?oom_memcg=(?P<cgroup>[^,]{1,512}),"
            r"(?:.*?,task=(?P<comm>.{0,64}?),pid=(?P<pid>\d{1,9}))?"
        ),
        plain("oom_scope", "app", "restart_app", "error", True),
    ),
    Rule(
        "oom-kill",
        re.compile(
            r"oom-kill:constraint=CONSTRAINT_\w+(?:,.*?,task=(?P<comm>.{0,64}?),pid=(?P<pid>\d{1,9}))?"
        ),
        plain("oom_scope", "host_memory", "restart_app", "error", True),
    ),
    Rule(
        "blocked for",
        re.compile(
            r"INFO: task (?P<comm>.{1,64}):(?P<pid>\d{1,9}) blocked for more than \d+ second"
        ),
        plain("hung_task", "host_kernel", "reboot_node", "error"),
    ),
    # sched_show_task since 5.11, of a task in uninterruptible sleep: after INFO, or by SysRq alone.
    Rule(
        "state:D",
        re.compile(r"task:(?P<comm>\S.{0,63}?) {1,16}state:D .{0,40}pid:(?P<pid>\d{1,9})"),
        plain("hung_task", "host_kernel", "reboot_node", "error", True),
    ),
    Rule(
        "BUG",
        re.compile(
            r"BUG: soft lockup - CPU#\d+ stuck for \d+s!"
            r"(?: \[(?P<comm>.{0,64}):(?P<pid>\d{1,9})\])?"
        ),
        plain("soft_lockup", "host_kernel", "reboot_node", "error"),
    ),
    Rule(
        "LOCKUP",
        re.compile(r"Watchdog detected hard LOCKUP on cpu \d+"),
        plain("hard_lockup", "host_kernel", "reboot_node", "fatal"),
    ),
    Rule(
        "ted stall",
        re.compile(r"rcu\w*:? .{0,60}(?:detected (?:expedited )?stall)"),
        plain("cpu_stall", "host_kernel", "reboot_node", "error"),
    ),
    Rule(
        "Kernel panic",
        re.compile(r"Kernel panic - not syncing"),
        plain("kernel_panic", "host_kernel", "reboot_node", "fatal"),
    ),
    Rule(
        "BUG",
        re.compile(r"BUG: (?:unable to handle|kernel NULL pointer|Bad page)|kernel BUG at "),
        plain("kernel_fault", "host_kernel", "reboot_node", "fatal"),
    ),
    Rule(
        "[#",
        re.compile(r"Oops: .*\[#\d+\]"),
        plain("kernel_fault", "host_kernel", "reboot_node", "fatal", True),
    ),
    Rule(
        "[#",
        re.compile(r"general protection fault, .{0,80}\[#\d+\]"),
        plain("kernel_fault", "host_kernel", "reboot_node", "fatal"),
    ),
    # arch/x86/mm/fault.c and traps.c; a program that breaks by itself.
    Rule(
        ERROR,
        re.compile(
            r"(?P<comm>\S.{0,63})\[(?P<pid>\d{1,9})\]: segfault at [0-9a-f]+ ip [0-9a-f]+"
            r" sp [0-9a-f]+ error"
        ),
        plain("user_fault", "app", "restart_app", "error"),
    ),
    Rule(
        ERROR,
        re.compile(
            r"traps: (?P<comm>\S.{0,63})\[(?P<pid>\d{1,9})\] (?:general protection|trap ).{0,40}"
            r" ip:[0-9a-f]+ sp:[0-9a-f]+ error:"
        ),
        plain("user_fault", "app", "restart_app", "error"),
    ),
    Rule(
        ERROR,
        re.compile(r"EDAC (?P<device>\S*MC\d+): (?P<count>\d+) CE .{0,80}?on "),
        plain("memory_corrected", "host_memory", "investigate", "warn"),
    ),
    Rule(
        ERROR,
        re.compile(r"EDAC (?P<device>\S*MC\d+): (?P<count>\d+) UE .{0,80}?on "),
        plain("memory_uncorrected", "host_memory", "drain", "fatal"),
    ),
    Rule(
        ERROR,
        re.compile(r"mce: \[Hardware Error\]: Machine check events logged"),
        plain("machine_check", "host_memory", "investigate", "warn"),
    ),
    # mm/memory-failure.c: a page with an uncorrectable error; and reports of the firmware (APEI).
    Rule(
        " failure",
        re.compile(r"Memory failure: 0x[0-9a-f]+: (?:Killing|recovery action|.{0,60}unhandlable)"),
        plain("memory_uncorrected", "host_memory", "drain", "fatal"),
    ),
    Rule(
        ERROR,
        re.compile(r"\[Hardware Error\]: event severity: (?:fatal|recoverable)"),
        plain("machine_check", "host_memory", "drain", "fatal"),
    ),
    Rule(
        ERROR,
        re.compile(r"\[Hardware Error\]: Hardware error from APEI"),
        plain("machine_check", "host_memory", "investigate", "warn"),
    ),
    Rule(
        ERROR,
        re.compile(r"mce: \[Hardware Error\]: (?P<device>CPU \d+): Machine Check Exception"),
        plain("machine_check", "host_memory", "drain", "fatal"),
    ),
    Rule(
        ERROR,
        re.compile(rf"(?:critical )?(?:I/O|medium|target|nexus) error, dev {_DISK},"),
        _DISK_ERROR,
    ),
    Rule(ERROR, re.compile(rf"Buffer I/O error on dev(?:ice)? {_DISK}[, ]"), _DISK_ERROR),
    Rule(ERROR, re.compile(rf"(?:nvme )?{_DISK}: I/O Cmd\(0x\w+\) @ LBA .*I/O Error"), _DISK_ERROR),
    # drivers/scsi/sd.c, libata-eh.c, md
    Rule(
        ERROR,
        re.compile(r"\[(?P<device>sd[a-z]{1,3})\] .{0,40}Sense Key : (?:Medium|Hardware) Error"),
        _DISK_ERROR,
    ),
    Rule(
        "Emask",
        re.compile(r"(?P<device>ata\d{1,3}(?:\.\d{2})?): exception Emask 0x"),
        plain("disk_error", "storage", "investigate", "error"),
    ),
    Rule(
        " failure",
        re.compile(r"md/raid\w*:\S{1,32}: Disk failure on (?P<device>[\w!/.-]{1,32}?),"),
        _DISK_ERROR,
    ),
    Rule(
        ERROR,
        re.compile(rf"EXT[234]-fs error \(device {_DISK}\)"),
        _FS_ERROR,
    ),
    Rule(ERROR, re.compile(rf"EXT[234]-fs \({_DISK}\): (?:.* )?I/O error"), _FS_ERROR),
    Rule(ERROR, re.compile(rf"BTRFS (?:error|critical) \(device {_DISK}"), _FS_ERROR),
    Rule(ERROR, re.compile(rf"JBD2: (?:I/O error|Error -?\d+) .*?{_DISK}\.?$"), _FS_ERROR),
    Rule(
        "XFS (",
        re.compile(
            rf"XFS \({_DISK}\): (?:.*(?:I/O [Ee]rror|[Cc]orruption|shut down|[Ss]hutting down))"
        ),
        _FS_ERROR,
    ),
    Rule(
        NVME,
        re.compile(r"nvme (?P<device>nvme\d+): I/O .{0,80}timeout"),
        plain("nvme_timeout", "storage", "drain", "error"),
    ),
    Rule(
        NVME,
        re.compile(
            r"nvme (?P<device>nvme\d+): (?:controller is down|Device not ready|"
            r"Removing after probe|Disabling device after reset|Device shutdown incomplete)"
        ),
        plain("nvme_lost", "storage", "drain", "fatal"),
    ),
    Rule(
        "nfs: server",
        re.compile(r"nfs: server (?P<device>\S{1,253}) not responding"),
        plain("network_storage_silent", "storage", "investigate", "error"),
    ),
    Rule(
        "nfs: server",
        re.compile(r"nfs: server (?P<device>\S{1,253}) OK"),
        plain("network_storage_back", "benign", "none", "info"),
    ),
    Rule(
        ERROR,
        re.compile(r"LustreError: (?:\d+-\d+: )?(?P<device>[\w.-]{1,64})"),
        plain("network_storage_silent", "storage", "investigate", "error"),
    ),
)
"""What is read of the host's own lines."""
