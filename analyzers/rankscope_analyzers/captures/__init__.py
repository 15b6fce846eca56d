"""What is known of a job at one moment, in one file that outlives its pods and is read offline."""
