"""Shows a recording or a survey full-screen, with keys and the mouse."""
