"""Kernel log lines about memory, processes, disks and the kernel: pure patterns and their meaning.

Formats: mm/oom_kill.c (4.x to 6.x), kernel/hung_task.c, kernel/watchdog.c, RCU's stall warnings,
edac_mc.c, block/blk-core.c, fs/ext4, fs/xfs, drivers/nvme/host, net/sunrpc.
"""

from __future__ import annotations

import re

from rankscope_agent.contract.kernel.rule import Rule, plain

MCE, NVME = "[Hardware Error]: ", "nvme nvme"
_COMM = r"\((?P<comm>.{0,64}?)\)(?:,| |$)"
# A process name that begins a message: after whatever the log's format prepends.
_WHO = (
    r"(?:^|(?<=\] )|(?<=: )|(?<=;)|(?<=:\d\d ))"
    r"(?P<comm>[^\s\]](?:(?!\] |: |;|\d\dT\d\d:).){0,63}?)"
)
# Text before a path's first slash cannot be a container-chosen name: names contain no slash.
_PATH = r"/[^,]{0,512}"
_DISK = r"(?P<device>[\w!/.-]{1,32})"

_DISK_ERROR = plain("disk_error", "storage", "drain", "error")
_FS_ERROR = plain("filesystem_error", "storage", "drain", "error")

RULES: tuple[Rule, ...] = (
    # The process that requested memory; the victim is in a later line, which may be cut off.
    Rule(
        " invoked oom-killer: ",
        re.compile(_WHO + r" invoked oom-killer: gfp_mask="),
        plain("oom_search", "host_memory", "restart_app", "error", True),
    ),
    # Up to kernel 4.x the first of two lines says `Kill process N (comm) score M or sacrifice`.
    Rule(
        "out of memory: Kill",
        re.compile(
            rf"Memory cgroup out of memory: Kill(?:ed)? process (?P<pid>\d{{1,9}}),? {_COMM}"
        ),
        plain("oom_kill", "app", "restart_app", "error"),
    ),
    Rule(
        "Out of memory",
        re.compile(
            rf"Out of memory(?: \(\w+\))?: Kill(?:ed)? process (?P<pid>\d{{1,9}}),? {_COMM}"
        ),
        plain("oom_kill", "host_memory", "restart_app", "error"),
    ),
    # Kernels before 5.0 print the cgroups in a separate line, without the process.
    Rule(
        " killed as a result of limit of /",
        re.compile(
            rf"Task in (?P<victim>{_PATH}) killed as a result of limit of (?P<cgroup>{_PATH})"
        ),
        plain("oom_scope", "app", "restart_app", "error", True),
    ),
    Rule(
        "oom-kill:constraint=CONSTRAINT_",
        re.compile(
            rf"oom-kill:constraint=CONSTRAINT_MEMCG,.*?oom_memcg=(?P<cgroup>{_PATH}),"
            rf"(?:task_memcg=(?P<victim>{_PATH}),)?"
            r"(?:.*?task=(?P<comm>.{0,64}?),pid=(?P<pid>\d{1,9}))?"
        ),
        plain("oom_scope", "app", "restart_app", "error", True),
    ),
    Rule(
        "oom-kill:constraint=CONSTRAINT_",
        re.compile(
            rf"oom-kill:constraint=CONSTRAINT_\w+(?:,.*?task_memcg=(?P<victim>{_PATH}))?"
            r"(?:,.*?task=(?P<comm>.{0,64}?),pid=(?P<pid>\d{1,9}))?"
        ),
        plain("oom_scope", "host_memory", "restart_app", "error", True),
    ),
    Rule(
        " blocked for more than ",
        re.compile(
            r"INFO: task (?P<comm>.{1,64}):(?P<pid>\d{1,9}) blocked for more than \d+ second"
        ),
        plain("hung_task", "host_kernel", "reboot_node", "error"),
    ),
    # sched_show_task since 5.11, of a task in uninterruptible sleep: after INFO, or by SysRq only.
    Rule(
        "state:D stack:",
        re.compile(r"task:(?P<comm>\S.{0,63}?) {1,16}state:D stack:.{0,34}pid:(?P<pid>\d{1,9})"),
        plain("hung_task", "host_kernel", "reboot_node", "error", True),
    ),
    Rule(
        "BUG: soft lockup - CPU",
        re.compile(
            r"BUG: soft lockup - CPU#\d+ stuck for \d+s!"
            r"(?: \[(?P<comm>.{0,64}):(?P<pid>\d{1,9})\])?"
        ),
        plain("soft_lockup", "host_kernel", "reboot_node", "error"),
    ),
    Rule(
        "hard LOCKUP on cpu ",
        re.compile(r"Watchdog detected hard LOCKUP on cpu \d+"),
        plain("hard_lockup", "host_kernel", "reboot_node", "fatal"),
    ),
    # Either its beginning or its end may be cut off.
    *(
        Rule(
            needle,
            re.compile(r"rcu\w*:? .{0,60}(?:detected (?:expedited )?stall)"),
            plain("cpu_stall", "host_kernel", "reboot_node", "error"),
        )
        for needle in ("INFO: rcu", "stall on CPU")
    ),
    Rule(
        "Kernel panic",
        re.compile(r"Kernel panic - not syncing"),
        plain("kernel_panic", "host_kernel", "reboot_node", "fatal"),
    ),
    Rule(
        "BUG",
        re.compile(
            r"BUG: (?:unable to handle|kernel NULL pointer|Bad page|KASAN: )|kernel BUG at "
        ),
        plain("kernel_fault", "host_kernel", "reboot_node", "fatal"),
    ),
    Rule(
        "Oops: ",
        re.compile(r"Oops: .*\[#\d+\]"),
        plain("kernel_fault", "host_kernel", "reboot_node", "fatal", True),
    ),
    Rule(
        "general protection fault",
        re.compile(r"general protection fault[,:] .{0,80}\[#\d+\]"),
        plain("kernel_fault", "host_kernel", "reboot_node", "fatal"),
    ),
    # arch/x86/mm/fault.c and traps.c; a program that crashes by itself.
    Rule(
        "]: segfault at  ip  sp ",
        re.compile(
            _WHO + r"\[(?P<pid>\d{1,9})\]: segfault at [0-9a-f]+ ip [0-9a-f]+"
            r" sp [0-9a-f]+ error"
        ),
        plain("user_fault", "app", "restart_app", "error"),
    ),
    Rule(
        " ip: sp: error:",
        re.compile(
            r"traps: (?P<comm>\S.{0,63})\[(?P<pid>\d{1,9})\] (?:general protection|trap ).{0,40}"
            r" ip:[0-9a-f]+ sp:[0-9a-f]+ error:"
        ),
        plain("user_fault", "app", "restart_app", "error"),
    ),
    Rule(
        "EDAC ",
        re.compile(r"EDAC (?P<device>\S*MC\d+): (?P<count>\d+) CE .{0,80}?on "),
        plain("memory_corrected", "host_memory", "investigate", "warn"),
    ),
    Rule(
        "EDAC ",
        re.compile(r"EDAC (?P<device>\S*MC\d+): (?P<count>\d+) UE .{0,80}?on "),
        plain("memory_uncorrected", "host_memory", "drain", "fatal"),
    ),
    Rule(
        "Machine check events logged",
        re.compile(r"mce: \[Hardware Error\]: Machine check events logged"),
        plain("machine_check", "host_memory", "investigate", "warn"),
    ),
    # mm/memory-failure.c: a page with an uncorrectable error.
    Rule(
        "Memory failure: ",
        re.compile(r"Memory failure: 0x[0-9a-f]+: (?:Killing|recovery action|.{0,60}unhandlable)"),
        plain("memory_uncorrected", "host_memory", "drain", "fatal"),
    ),
    Rule(
        MCE,
        re.compile(r"mce: \[Hardware Error\]: (?P<device>CPU \d+): Machine Check Exception"),
        plain("machine_check", "host_memory", "drain", "fatal"),
    ),
    *(
        Rule(
            f"{what} error, dev ",
            re.compile(rf"{what} error, dev {_DISK},"),
            _DISK_ERROR,
        )
        for what in ("I/O", "critical medium", "critical target", "critical nexus")
    ),
    Rule(
        "Buffer I/O error on dev",
        re.compile(rf"Buffer I/O error on dev(?:ice)? {_DISK}[, ]"),
        _DISK_ERROR,
    ),
    Rule(
        "I/O Cmd(",
        re.compile(rf"(?:nvme )?{_DISK}: I/O Cmd\(0x\w+\) @ LBA .*I/O Error"),
        _DISK_ERROR,
    ),
    # drivers/scsi/sd.c, libata-eh.c, md
    Rule(
        "Sense Key : ",
        re.compile(r"\[(?P<device>sd[a-z]{1,3})\] .{0,40}Sense Key : (?:Medium|Hardware) Error"),
        _DISK_ERROR,
    ),
    Rule(
        "exception Emask ",
        re.compile(r"(?P<device>ata\d{1,3}(?:\.\d{2})?): exception Emask 0x"),
        plain("disk_error", "storage", "investigate", "error"),
    ),
    Rule(
        "Disk failure on ",
        re.compile(r"md/raid\w*:\S{1,32}: Disk failure on (?P<device>[\w!/.-]{1,32}?),"),
        _DISK_ERROR,
    ),
    Rule(
        "EXT-fs error (device ",
        re.compile(rf"EXT[234]-fs error \(device {_DISK}\)"),
        _FS_ERROR,
    ),
    Rule("I/O error", re.compile(rf"EXT[234]-fs \({_DISK}\): (?:.* )?I/O error"), _FS_ERROR),
    Rule("BTRFS ", re.compile(rf"BTRFS (?:error|critical) \(device {_DISK}"), _FS_ERROR),
    Rule("JBD2: ", re.compile(rf"JBD2: (?:I/O error|Error -?\d+) .*?{_DISK}\.?$"), _FS_ERROR),
    *(
        Rule("XFS (", re.compile(rf"XFS \({_DISK}\): .*{what}"), _FS_ERROR, also)
        for also, what in (
            ("I/O ", "I/O [Ee]rror"),
            ("orruption", "[Cc]orruption"),
            ("hut down", "shut down"),
            ("hutting down", "[Ss]hutting down"),
        )
    ),
    Rule(
        NVME,
        re.compile(r"nvme (?P<device>nvme\d+): I/O .{0,80}timeout"),
        plain("nvme_timeout", "storage", "drain", "error"),
    ),
    # drivers/nvme/host/tcp.c, rdma.c and multipath.c: a disk attached over a network.
    Rule(
        NVME,
        re.compile(
            r"nvme (?P<device>nvme\d+): (?:queue \d+: timeout|starting error recovery"
            r"|failed nvme_keep_alive|Reconnecting in \d+ second)"
        ),
        plain("nvme_timeout", "storage", "investigate", "error"),
    ),
    Rule(
        "block nvme",
        re.compile(r"block (?P<device>nvme\d+)n\d+: no (?:usable|available) path"),
        plain("nvme_timeout", "storage", "investigate", "error"),
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
        also=" not responding",
    ),
    Rule(
        "nfs: server",
        re.compile(r"nfs: server (?P<device>\S{1,253}) OK"),
        plain("network_storage_back", "benign", "none", "info"),
        also=" OK",
    ),
    Rule(
        "LustreError: ",
        re.compile(r"LustreError: (?:\d+-\d+: )?(?P<device>[\w.-]{1,64})"),
        plain("network_storage_silent", "storage", "investigate", "error"),
    ),
)
"""The rules for lines about the host itself."""
