"""Options of the commands, one module per subcommand, without the libraries that running one takes.

`--help` and usage errors import nothing else: reading numpy and pandas takes half a second.
"""
