"""The operator: replaces nodes, group by group, from declarative objects."""
