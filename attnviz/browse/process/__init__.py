"""What every full-screen application does: the terminal, threads, pictures."""
