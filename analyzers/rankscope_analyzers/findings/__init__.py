"""The values that every conclusion is made of: findings, signals and where they hold."""
