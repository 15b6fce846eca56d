"""The node itself: readings of procfs, sysfs and cgroups, and the kernel's clock."""
