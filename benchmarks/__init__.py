"""Measure the cost of the framework beside other libraries: `make bench`.

`rows` has a module for each row of the report. `subjects` has the measured programs in
Python, each of which runs in a separate process, and `peers` the ones in Go. Nothing here
is part of the package.
"""
