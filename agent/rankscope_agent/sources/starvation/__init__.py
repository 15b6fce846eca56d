"""CPU wait times of training processes."""
