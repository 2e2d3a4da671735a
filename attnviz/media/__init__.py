"""What a model read, in which its tokens have their places: texts."""
