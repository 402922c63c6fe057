"""The simulator's controllers, written on the framework that they help to test.

Each module holds the pure decisions of one controller, its reconciler, and a function
`install` that adds the controller to the manager.
"""
