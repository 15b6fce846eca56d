"""An example of rankscope.yaml: every key once."""

from __future__ import annotations

EXAMPLE = """\
# yaml-language-server: $schema=./rankscope.schema.json
version: 1
# Minimum time without a step before a job counts as hung.
hang_after: 90s
# What is expected of a class's jobs: the share that succeeds, the share of their GPU time that no
# fault takes, the time within which a job completes, and that within which it makes steps again
# after a restart or hang. "" stands for all other classes.
objectives:
  - class: production
    success_ratio: 0.97
    goodput: 0.96
    time_to_complete: 14d
    time_to_recover: 15m
  - {class: "", success_ratio: 0.8}
# At what alerts fire; `rankscope config render` lists all of them.
thresholds:
  lost_share: 0.08
  cascade_jobs: 5
# Who gets alerts; for projects without a row, labels of their pods decide.
owners:
  on_call: {slack: "#training-pages"}
  platform: {slack: "#gpu-platform", email: gpu-platform@example.org}
  network: {slack: "#fabric"}
  projects:
    - {project: llm, slack: "#llm-training", email: llm@example.org}
mail: {smarthost: "mail.example.org:587", from: rankscope@example.org}
# Labels of pods with a job's project and so on, replacing the usual ones.
labels:
  project: [example.org/cost-center, project]
# Addresses of the networks that gradients should take.
fabric:
  ranges: [10.64.0.0/12, "fd00:64::/32"]
# The project of a namespace's jobs whose pods have no label for it.
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
