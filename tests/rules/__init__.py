"""Which rules of the specification the tests pin, and which none does: `make rules`."""
