"""All that is known of a job at a moment, in a file that outlives its pods and is read offline."""
