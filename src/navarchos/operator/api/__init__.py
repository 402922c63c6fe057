"""The operator's API, by version."""
