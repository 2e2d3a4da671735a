"""Makes recordings from arrays that other programs computed."""
