"""Text for people: sanitizing foreign text, lists, numbers, names of runbooks."""
