"""One page to look at: before and after of every picture, in a single file that works offline."""

from nelu_cli.pages.entry import Entry, Looks, look_at
from nelu_cli.pages.page import picture_budget, render, write_page

__all__ = ["Entry", "Looks", "look_at", "picture_budget", "render", "write_page"]
