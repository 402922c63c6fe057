"""The `navarchos` command line. No other package imports it."""
