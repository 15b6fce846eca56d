"""What kernels say of their clients of Lustre and CephFS, from debugfs."""
