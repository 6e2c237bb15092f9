"""Whatever bytes come in, the answer is a Picture or one ImageError."""

import io
import random
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image

from nelu_cli.errors import ImageError
from nelu_cli.images import Metadata, Picture, probe, read, write

Array = NDArray[Any]

ROUNDS = 110  # per seed file: about 3000 inputs in all
LIMIT = 10**6  # pixels: no input may ask for more memory than this costs


def _noise(*shape: int) -> Array:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def _written(pixels: Array, format: str, alpha: Array | None = None) -> bytes:
    exif = Image.Exif()
    exif[274] = 6
    exif[271] = "Maker"
    metadata = Metadata(icc=b"profile" * 9, exif=exif.tobytes()[6:], xmp=b"<xmp/>", dpi=(72, 72))
    stream = io.BytesIO()
    write(Picture(pixels, alpha, format, metadata), stream)
    return stream.getvalue()


def _tiff(
    pixels: Array,
    *,
    compression: str | None = None,
    predictor: bool = False,
    byteorder: Literal["<", ">"] = "<",
    tile: tuple[int, int] | None = None,
    imagej: bool = False,
) -> bytes:
    stream = io.BytesIO()
    tifffile.imwrite(
        stream,
        pixels,
        photometric="rgb" if pixels.shape[-1] == 3 else "minisblack",
        compression=compression,
        predictor=predictor,
        byteorder=byteorder,
        tile=tile,
        imagej=imagej,
    )
    return stream.getvalue()


def _pillow(pixels: Array, format: str, mode: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, format)
    return stream.getvalue()


SEEDS: dict[str, Callable[[], bytes]] = {
    "png-grey": lambda: _written(_noise(13, 17, 1), "PNG"),
    "png-rgba": lambda: _written(_noise(13, 17, 3), "PNG", _noise(13, 17)),
    "png-16": lambda: _written(_noise(13, 17, 3).astype(np.uint16) * 257, "PNG"),
    "png-palette": lambda: _pillow(_noise(13, 17, 3), "PNG", "P"),
    "png-bilevel": lambda: _pillow(_noise(13, 17), "PNG", "1"),
    "jpeg-rgb": lambda: _written(_noise(24, 33, 3), "JPEG"),
    "jpeg-grey": lambda: _written(_noise(24, 33, 1), "JPEG"),
    "jpeg-cmyk": lambda: _pillow(_noise(24, 33, 3), "JPEG", "CMYK"),
    "tiff-plain": lambda: _tiff(_noise(13, 17)),
    "tiff-rgb": lambda: _written(_noise(13, 17, 3), "TIFF"),
    "tiff-lzw": lambda: _tiff(_noise(13, 17, 3), compression="lzw", predictor=True),
    "tiff-zstd": lambda: _tiff(_noise(3, 13, 17), compression="zstd"),
    "tiff-tiled": lambda: _tiff(_noise(33, 40, 3), compression="zlib", tile=(16, 16)),
    "tiff-float": lambda: _tiff(_noise(13, 17).astype(np.float32), byteorder=">"),
    "tiff-imagej": lambda: _tiff(_noise(4, 13, 17), imagej=True),
    "tiff-palette": lambda: _pillow(_noise(13, 17, 3), "TIFF", "P"),
    "tiff-jpeg": lambda: _tiff(_noise(32, 32, 3), compression="jpeg"),
    "webp-lossless": lambda: _written(_noise(13, 17, 3), "WEBP", _noise(13, 17)),
    "webp-lossy": lambda: _pillow(_noise(13, 17, 3), "WEBP", "RGB"),
    "ppm": lambda: _written(_noise(13, 17, 3), "PPM"),
    "pgm-16": lambda: _written(_noise(13, 17, 1).astype(np.uint16) * 200, "PPM"),
    "pgm-text": lambda: b"P2\n# text\n5 3\n15\n" + b" ".join(b"%d" % i for i in range(15)),
    "pbm": lambda: _pillow(_noise(13, 17), "PPM", "1"),
    "bmp": lambda: _written(_noise(13, 17, 3), "BMP"),
    "bmp-palette": lambda: _pillow(_noise(13, 17, 3), "BMP", "P"),
    "gif": lambda: _pillow(_noise(13, 17, 3), "GIF", "P"),
    "avif": lambda: _written(_noise(16, 16, 3), "AVIF"),
}


def _mutated(data: bytes, chance: random.Random) -> bytes:
    """Flip bits, overwrite, repeat or drop a run of bytes, cut off the end."""
    content = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        reach = len(content) if chance.random() < 0.5 else min(len(content), 200)
        start = chance.randrange(reach) if reach else 0
        run = chance.choice((1, 2, 4, 8, 30))
        match chance.randrange(6):
            case 0 | 1 if content:
                content[start] ^= 1 << chance.randrange(8)
            case 2:
                content[start : start + run] = chance.choice((b"\0", b"\xff", b"\x7f")) * run
            case 3:
                content[start : start + run] = chance.randbytes(run)
            case 4:
                source = chance.randrange(len(content) + 1)
                content[start:start] = content[source : source + run]
            case _:
                del content[start : (start + run if chance.random() < 0.7 else len(content))]
    return bytes(content)


def _outcome(data: bytes) -> Picture | str:
    """The picture, or the message of the only error allowed."""
    try:
        header = probe(data, max_pixels=LIMIT)
        picture = read(data, max_pixels=LIMIT)
    except ImageError as error:
        return str(error)
    assert picture.pixels.size > 0
    assert picture.pixels.shape[-3:] == (header.height, header.width, header.channels)
    assert picture.pixels.dtype == header.dtype
    assert (picture.alpha is not None) == header.alpha
    return picture


def _check(outcome: Picture | str) -> None:
    if isinstance(outcome, str):
        assert outcome.startswith("standard input: ")
        assert "\n" not in outcome


@pytest.mark.parametrize("name", SEEDS)
def test_mutated_files_give_a_picture_or_an_image_error(name: str) -> None:
    original = SEEDS[name]()
    assert isinstance(_outcome(original), Picture)
    chance = random.Random(name)
    for _ in range(ROUNDS):
        _check(_outcome(_mutated(original, chance)))


@pytest.mark.parametrize("name", SEEDS)
def test_what_survives_mutation_can_be_written_again(name: str) -> None:
    original = SEEDS[name]()
    chance = random.Random(name + " again")
    for _ in range(ROUNDS // 10):
        picture = _outcome(_mutated(original, chance))
        if isinstance(picture, str):
            continue
        target = picture.format if picture.format != "GIF" else "PNG"
        stream = io.BytesIO()
        write(picture, stream, format=target)
        assert read(stream.getvalue()).pixels.shape == picture.pixels.shape


@pytest.mark.parametrize("name", SEEDS)
def test_every_truncation_gives_a_picture_or_an_image_error(name: str) -> None:
    original = SEEDS[name]()
    for end in range(0, len(original), max(1, len(original) // 25)):
        _check(_outcome(original[:end]))
