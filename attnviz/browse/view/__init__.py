"""What is on the screen, decided from state and session: one frozen value."""
