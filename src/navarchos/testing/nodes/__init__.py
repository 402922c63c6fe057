"""Real nodes for tests: kubelets with containers, and the images that they run."""
