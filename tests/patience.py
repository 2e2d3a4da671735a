"""How long a test waits for what surely comes: so long that it ends a test that hangs, and decides no other."""

PATIENCE = 300.0  # seconds, on a machine that is shared by many
