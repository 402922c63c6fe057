"""How rollouts and drains are shown, wherever they are shown."""
