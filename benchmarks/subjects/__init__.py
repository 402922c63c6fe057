"""The measured programs, one process each. They import nothing else of `benchmarks`."""
