"""The programs that are measured, a process each. They import nothing of the harness."""
