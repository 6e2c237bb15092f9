"""From noisy to clean pixels: the pipeline, tiles, devices."""
