"""Sets of pictures: finding and reading them, downloads, training patches."""
