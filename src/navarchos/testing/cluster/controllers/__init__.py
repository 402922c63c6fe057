"""The simulator's controllers, written on the framework that they help to test.

Each module holds one reconciler and a function `install` that adds it to the
manager. What they decide stands in pure modules one level up.
"""
