"""Server-side apply: who manages which field of an object."""
