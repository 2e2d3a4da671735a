"""Keys: where things stand on the screen, and the state after each key."""
