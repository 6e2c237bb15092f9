"""``nelu models``: which weights there are and what they can do."""
