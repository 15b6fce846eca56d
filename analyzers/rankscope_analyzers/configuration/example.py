"""An example of rankscope.yaml: every key once."""

from __future__ import annotations

EXAMPLE = """\
# yaml-language-server: $schema=./rankscope.schema.json
version: 1
# Least time without a step after which a job is called hung.
hang_after: 90s
# Which share of a class's jobs should succeed; "" stands for all other classes.
objectives:
  - {class: production, success_ratio: 0.97}
  - {class: "", success_ratio: 0.8}
# Whose the jobs of a namespace are where their pods have no label for it.
projects:
  - {namespace: vision-prod, project: vision}
  - {namespace: llm, project: llm}
# What an hour of a GPU costs; the first row that fits counts.
prices:
  currency: EUR
  gpu_hours:
    - {gpu: H100, project: llm, price: 2.1}
    - {gpu: H100, price: 2.4}
    - {price: 1.2}
# What a project may spend in 30 days.
budgets:
  - {project: llm, month: 400000}
# Whose production jobs may page somebody at night.
paging_namespaces: [vision-prod]
links:
  runbooks: https://docs.example.org/rankscope/runbooks
  grafana: https://grafana.example.org
"""
