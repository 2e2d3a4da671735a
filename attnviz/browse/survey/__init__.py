"""Shows a survey full-screen."""
