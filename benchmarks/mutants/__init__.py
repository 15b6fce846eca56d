"""Mutation testing of constants: is there a test that fails when one of them changes?

Module by module: the population, what depends on a constant, how a mutant gets into modules that
are already imported, the tests that reach it, programs that do not see it, and the command.
"""
