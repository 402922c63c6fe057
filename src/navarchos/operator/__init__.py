"""The operator: replaces nodes, group by group, as declared in NodeRollouts."""
