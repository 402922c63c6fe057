"""What the framework costs, measured beside its peers: `make bench`.

`rows` has a module for each row of the targets, `subjects` the programs that are
measured, each in a process of its own, `peers` those in Go. Nothing here is shipped.
"""
