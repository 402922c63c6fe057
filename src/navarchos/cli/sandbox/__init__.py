"""`navarchos sandbox`: a cluster in this process, the real manager beside it."""
