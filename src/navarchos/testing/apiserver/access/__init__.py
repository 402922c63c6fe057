"""Who asks, and may they: users, tokens, RBAC."""
