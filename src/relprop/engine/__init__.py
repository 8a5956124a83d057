"""The engine: the user's own model runs unmodified while the rules change how its output flows back."""
