"""The command line: what a person types, and nothing that a library needs."""
