"""What surrounds a program's own words in a log: frames of pipelines and prefixes of launchers."""
