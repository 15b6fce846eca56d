"""Options of the commands, one module per subcommand, without the libraries that running one needs.

`--help` and usage errors import nothing else: importing numpy and pandas takes half a second.
"""
