"""Whom the ranks of a job that stands still wait for. Pure: from where ranks stand to suspects."""
