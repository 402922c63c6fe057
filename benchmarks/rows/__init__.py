"""A module for each row of the report."""
