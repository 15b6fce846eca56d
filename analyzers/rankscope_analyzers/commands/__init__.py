"""The command line: one module per subcommand, arguments and nothing else."""
