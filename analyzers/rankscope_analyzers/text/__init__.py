"""Text for people: foreign text made harmless, lists, numbers, names of runbooks."""
