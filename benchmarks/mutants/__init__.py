"""Mutation testing of constants: is there a test that fails when one of them changes?

Module by module: the population, who depends on a constant, how a mutant gets into modules that are
imported already, the tests that reach it, programs that do not see it, and the command.
"""
