"""Words about a picture: titles, captions, remarks, notes, and the command that draws it again."""
