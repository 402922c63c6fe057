"""`navarchos sandbox`: a simulated cluster in this process, and the real manager beside it."""
