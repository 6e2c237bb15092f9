"""RAW files of cameras: denoised on the sensor's mosaic, then developed, or kept as DNG."""

from nelu_cli.raw.formats import register_raw
from nelu_cli.raw.mosaic import Mosaic

__all__ = ["Mosaic", "register_raw"]
