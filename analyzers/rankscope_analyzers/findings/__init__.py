"""The finding, the type of every conclusion, with its location and the advice on its kind."""
