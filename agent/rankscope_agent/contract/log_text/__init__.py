"""What stands around a program's own words in any log: frames of pipelines, launchers' prefixes."""
