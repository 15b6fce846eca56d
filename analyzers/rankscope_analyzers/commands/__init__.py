"""The command line: one module per subcommand, which only connects arguments with output."""
