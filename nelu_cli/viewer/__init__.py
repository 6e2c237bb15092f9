"""A widget for the viewer napari; ``napari.yaml`` tells it where to find it."""
