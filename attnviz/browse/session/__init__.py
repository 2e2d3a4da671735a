"""What the inspector knows: the state, the recording, and what has been computed of it."""
