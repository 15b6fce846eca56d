"""The node itself: procfs, sysfs and cgroups, and the kernel's clock."""
