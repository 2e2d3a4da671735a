"""Known types of heads, each tested by its published definition against a control: `HeadTypes`."""
