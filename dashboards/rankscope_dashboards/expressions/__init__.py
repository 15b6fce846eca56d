"""PromQL: how expressions are written, joined and shared between rules and panels."""
