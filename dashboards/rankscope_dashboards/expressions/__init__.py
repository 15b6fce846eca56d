"""PromQL expressions shared by rules and panels."""
