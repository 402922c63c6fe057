"""The pipeline of one node: one module per step.

`Waiting → Reserved → Cordoned → Draining → Done`, or `Releasing` after a failed
attempt, and from there `Waiting` again or `Failed`. A step's module holds one pure
decision; nothing outside it knows what the step looks at. Later steps (preparing,
acting on the machine, awaiting its successor, verifying) take their place in
between without a change to the others.
"""
