"""Návarchos."""
