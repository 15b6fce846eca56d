"""Pure parsers of the lines in which training frameworks report their steps."""
