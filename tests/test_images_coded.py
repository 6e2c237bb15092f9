"""The limit of pixels counts for what a decoder makes, and a claimed size for what there is."""

import io
import struct
from collections.abc import Callable, Sequence
from typing import Any

import imagecodecs
import numpy as np
import pytest
from PIL import Image

from nelu_cli.errors import ImageError
from nelu_cli.images import av1, probe, read
from nelu_cli.images.iso_boxes import Bits, boxes, coded_pictures
from nelu_cli.images.picture import Array

CLAIM = r"damaged AVIF file \(it claims {} pixels and holds {}\)"


def ramp(height: int, width: int, channels: int = 3) -> Array:
    values = np.add.outer(3 * np.arange(height), 2 * np.arange(width)) % 256
    return np.stack([values.astype(np.uint8)] * channels, axis=-1)


def avif(height: int = 40, width: int = 56, channels: int = 3, *, frames: int = 1) -> bytes:
    stream = io.BytesIO()
    image = Image.fromarray(ramp(height, width, channels))
    further = [image.rotate(90 * turn) for turn in range(1, frames)]
    image.save(stream, "AVIF", save_all=frames > 1, append_images=further)
    return stream.getvalue()


def box(name: bytes, *content: bytes) -> bytes:
    joined = b"".join(content)
    return struct.pack(">I4s", 8 + len(joined), name) + joined


def full(name: bytes, *content: bytes, version: int = 0, flags: int = 0) -> bytes:
    return box(name, struct.pack(">I", version << 24 | flags), *content)


def ispe(width: int, height: int) -> bytes:
    return full(b"ispe", struct.pack(">II", width, height))


def claiming(file: bytes, width: int, height: int) -> bytes:
    """The file with another size in its first ``ispe``."""
    at = file.index(b"ispe") + 8
    return file[:at] + struct.pack(">II", width, height) + file[at + 8 :]


def coded(file: bytes, kind: bytes) -> tuple[list[bytes], bytes]:
    """The properties of a picture, but for its size, and its data."""
    meta = dict(boxes(dict(boxes(file))[b"meta"][4:]))
    known = boxes(dict(boxes(meta[b"iprp"]))[b"ipco"])
    (picture,) = coded_pictures(file, kind)
    return [box(name, data) for name, data in known if name not in (b"ispe", b"clap")], picture.data


def container(
    brand: bytes,
    items: Sequence[tuple[bytes, list[bytes], bytes]],
    tiles: Sequence[int] = (),
) -> bytes:
    """A file of items (kind, properties, data), the first of which is shown."""
    known = list(dict.fromkeys(each for _, own, _ in items for each in own))
    kept = b"".join(
        struct.pack(">HB", 1 + at, len(own)) + bytes(0x80 | 1 + known.index(each) for each in own)
        for at, (_, own, _) in enumerate(items)
    )
    infos = [
        full(b"infe", struct.pack(">HH4sx", 1 + at, 0, kind), version=2, flags=int(at > 0))
        for at, (kind, _, _) in enumerate(items)
    ]
    refs = box(b"dimg", struct.pack(f">HH{len(tiles)}H", 1, len(tiles), *tiles)) if tiles else b""
    count = struct.pack(">H", len(items))

    def before(start: int) -> bytes:
        places = b""
        for at, (_, _, data) in enumerate(items):
            places += struct.pack(">HHHII", 1 + at, 0, 1, start, len(data))
            start += len(data)
        meta = (
            full(b"hdlr", bytes(4), b"pict", bytes(13)),
            full(b"pitm", b"\0\1"),
            full(b"iloc", b"\x44\0", count, places),
            full(b"iinf", count, *infos),
            full(b"iref", refs),
            box(b"iprp", box(b"ipco", *known), full(b"ipma", struct.pack(">I", len(items)), kept)),
        )
        brands = box(b"ftyp", brand, bytes(4), brand, b"mif1", b"miaf")
        return brands + full(b"meta", *meta)

    head = before(8 + len(before(0)))
    return head + box(b"mdat", *(data for _, _, data in items))


def grid(width: int, height: int) -> bytes:
    """The data of a grid of 2 × 2 tiles."""
    return bytes((0, 0, 1, 1)) + struct.pack(">HH", width, height)


# AVIF


@pytest.mark.parametrize("size", [(8, 8), (56, 39), (55, 40), (57, 40), (56, 400), (400, 400)])
@pytest.mark.parametrize("kind", ["8 bits", "alpha", "10 bits", "sequence"])
def test_an_avif_of_another_size_than_it_claims_is_refused(
    size: tuple[int, int], kind: str
) -> None:
    """The decoder takes any size, and scales it in silence to the one that is claimed."""
    data = {
        "8 bits": lambda: avif(),
        "alpha": lambda: avif(channels=4),
        "10 bits": lambda: bytes(
            imagecodecs.avif_encode(ramp(40, 56).astype(np.uint16) * 4, bitspersample=10)
        ),
        "sequence": lambda: avif(frames=2),
    }[kind]()
    assert read(data, salvage=True).pixels.shape == (40, 56, 3)
    with pytest.raises(ImageError, match=CLAIM.format("{} x {}".format(*size), "56 x 40")):
        probe(claiming(data, *size))


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (17, 16), (65, 63), (1, 130)])
def test_avif_of_any_size_holds_what_it_claims(size: tuple[int, int]) -> None:
    for frames in (1, 2):
        header = probe(avif(*size, frames=frames))
        assert (header.height, header.width, header.coded) == (*size, size[0] * size[1])


def test_an_avif_that_is_to_be_cropped_is_kept_whole_with_a_word() -> None:
    own, data = coded(avif(40, 56), b"av01")
    crop = box(b"clap", struct.pack(">8I", 16, 1, 8, 1, 0, 1, 0, 1))
    picture = read(container(b"avif", [(b"av01", [*own, ispe(56, 40), crop], data)]))
    assert picture.pixels.shape == (40, 56, 3)
    assert picture.notes == ("the crop that viewers show is not applied: the whole is kept",)


def test_the_size_of_a_track_is_checked() -> None:
    """As an animation says it a second time, and the decoder uses that one."""
    data = avif(frames=2)
    at = data.index(b"tkhd")
    end = at - 4 + int.from_bytes(data[at - 4 : at])
    with pytest.raises(ImageError, match=CLAIM.format("8 x 8", "56 x 40")):
        probe(data[: end - 8] + struct.pack(">II", 8 << 16, 8 << 16) + data[end:])


def test_an_avif_made_of_tiles_is_as_large_as_it_claims() -> None:
    own, data = coded(avif(64, 64), b"av01")
    tile = (b"av01", [*own, ispe(64, 64)], data)
    shared = [each for each in own if each[4:8] == b"pixi"]

    def tiled(claimed: tuple[int, int], size: tuple[int, int]) -> bytes:
        first = (b"grid", [ispe(*claimed), *shared], grid(*size))
        return container(b"avif", [first, tile, tile, tile, tile], (2, 3, 4, 5))

    whole = read(tiled((100, 120), (100, 120))).pixels
    assert whole.shape == (120, 100, 3)
    assert np.abs(whole[64:, 64:].astype(int) - whole[:56, :36]).max() < 8
    for claimed in ((8, 8), (128, 128)):
        with pytest.raises(ImageError, match=CLAIM.format("{} x {}".format(*claimed), "100 x 120")):
            read(tiled(claimed, (100, 120)))


def test_boxes_that_could_be_read_in_two_ways_are_refused() -> None:
    data = avif()
    (inner,) = (content for name, content in boxes(data) if name == b"meta")
    with pytest.raises(ImageError, match="damaged AVIF file"):
        probe(data + box(b"meta", inner))
    size = ispe(56, 40)
    own, coded_data = coded(data, b"av01")
    two = [*own, size, ispe(8, 8)]
    with pytest.raises(ImageError, match="damaged AVIF file"):
        probe(container(b"avif", [(b"av01", two, coded_data)]))


def stream(*units: tuple[int, str]) -> bytes:
    """Units of AV1 (kind, bits), each with its length."""
    result = b""
    for kind, bits in units:
        content = bytes(int(bits[at : at + 8].ljust(8, "0"), 2) for at in range(0, len(bits), 8))
        result += bytes((kind << 3 | 2, len(content))) + content
    return result


def test_the_frames_of_av1_may_say_their_own_sizes() -> None:
    """A decoder follows a frame's header, even beyond the largest size of the sequence."""
    eight, large, half = (f"{size - 1:016b}" * 2 for size in (8, 1000, 500))
    sequence = f"000000000000{0:012b}0000011111111" + eight
    sequence += "0000000010011110"
    key = "000100"  # shown, whole
    inter = "001100010000001000111111110" + "000" * 7
    frames = {
        "as the sequence": (key + "0", {(8, 8)}),
        "a key frame": (key + "1" + "0000000" + large, {(1000, 1000)}),
        "a later frame": (inter + "0" * 7 + half, {(500, 500)}),
        "as an earlier frame": (inter + "001", set()),
        "an earlier frame again": ("1000", set()),
    }
    for frame, sizes in frames.values():
        for kind in (3, 6):
            assert av1.frame_sizes(stream((2, ""), (1, sequence), (kind, frame))) == sizes
    with pytest.raises(ValueError, match="before the header of its sequence"):
        av1.frame_sizes(stream((6, key)))
    with pytest.raises(ValueError, match="truncated"):
        av1.frame_sizes(stream((1, sequence[:40])))


def test_numbers_of_any_length_are_read_one_after_the_other() -> None:
    bits = Bits(b"\x12\x34\x56\x78")
    assert [bits(count) for count in (4, 0, 8, 1, 19)] == [1, 0, 0x23, 0, 0x45678]
    with pytest.raises(ValueError, match="truncated"):
        bits(1)


# HEIC


def heic(height: int, width: int) -> bytes:
    module = pytest.importorskip("pillow_heif")
    stream = io.BytesIO()
    module.encode("RGB", (width, height), ramp(height, width).tobytes(), stream, quality=50)
    return stream.getvalue()


@pytest.mark.parametrize("size", [(8, 8), (63, 64), (400, 400)])
def test_a_heic_of_another_size_than_it_claims_is_refused(size: tuple[int, int]) -> None:
    data = heic(320, 384)
    assert read(data).pixels.shape == (320, 384, 3)
    with pytest.raises(ImageError, match="damaged HEIF file"):
        read(claiming(data, *size))


def test_the_limit_counts_what_is_cropped() -> None:
    own, data = coded(heic(128, 192), b"hvc1")
    crop = box(b"clap", struct.pack(">8I", 96, 1, 100, 1, 0, 1, 0, 1))
    file = container(b"heic", [(b"hvc1", [*own, ispe(192, 128), crop], data)])
    assert read(file, max_pixels=192 * 128).pixels.shape == (100, 96, 3)
    with pytest.raises(ImageError, match="24,576 pixels, of which 96 x 100 are shown, exceed the"):
        read(file, max_pixels=192 * 128 - 1)


def test_the_limit_counts_every_use_of_a_tile() -> None:
    """Else a small file keeps the decoder busy for as long as it likes."""
    own, data = coded(heic(64, 64), b"hvc1")
    first = (b"grid", [ispe(64, 64)], grid(64, 64))
    file = container(b"heic", [first, (b"hvc1", [*own, ispe(64, 64)], data)], (2, 2, 2, 2))
    with pytest.raises(ImageError, match="16,384 pixels, of which 64 x 64 are shown, exceed"):
        probe(file, max_pixels=10000)
    assert probe(file, max_pixels=16384).coded == 16384


# TIFF

CODECS: dict[str, tuple[int, Callable[[Array], Any]]] = {
    "JPEG": (7, imagecodecs.jpeg_encode),
    "JPEG 2000": (34712, imagecodecs.jpeg2k_encode),
    "JPEG 2000 stream": (
        34712,
        lambda values: imagecodecs.jpeg2k_encode(values, codecformat="J2K"),
    ),
    "JPEG XL": (50002, imagecodecs.jpegxl_encode),
    "JPEG XL in boxes": (
        50002,
        lambda values: imagecodecs.jpegxl_encode(values, usecontainer=True),
    ),
    "JPEG XR": (34934, imagecodecs.jpegxr_encode),
    "PNG": (34933, imagecodecs.png_encode),
    "WebP": (50001, lambda values: imagecodecs.webp_encode(values, lossless=True)),
    "WebP with losses": (50001, lambda values: imagecodecs.webp_encode(values, lossless=False)),
    "LERC": (34887, imagecodecs.lerc_encode),
}


def tiff(
    height: int, width: int, segment: bytes, compression: int, tile: tuple[int, int] | None = None
) -> bytes:
    """A TIFF of one strip or tile that holds whatever is given."""
    tags = {256: width, 257: height, 258: 8, 259: compression, 262: 2, 277: 3, 284: 1}
    at = 8 + 2 + 12 * (len(tags) + (4 if tile else 3)) + 4
    if tile:
        tags |= {322: tile[1], 323: tile[0], 324: at, 325: len(segment)}
    else:
        tags |= {273: at, 278: height, 279: len(segment)}
    entries = b"".join(struct.pack("<HHII", code, 4, 1, tags[code]) for code in sorted(tags))
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + segment


@pytest.mark.parametrize("name", CODECS)
def test_a_strip_or_tile_larger_than_its_place_is_refused(name: str) -> None:
    """It was decoded whole, whatever the limit; then cut, or its rows were mixed up."""
    compression, encode = CODECS[name]
    for size, tile in (((40, 48), None), ((48, 48), (48, 48)), ((300, 700), (304, 704))):
        held = tile or size
        data = tiff(*size, bytes(encode(ramp(*held))), compression, tile)
        picture = read(data)
        assert picture.pixels.shape == (*size, 3)
        error = np.abs(picture.pixels.astype(int) - ramp(*held)[: size[0], : size[1]])
        assert np.median(error) < 8
    large = bytes(encode(ramp(64, 96)))
    message = r"damaged TIFF file \(96 x 64 pixels in a strip or tile of {}\)"
    for size, tile, place in (
        ((16, 8), None, "8 x 16"),
        ((16, 96), None, "96 x 16"),
        ((96, 64), None, "64 x 96"),
        ((96, 64), (96, 64), "64 x 96"),
        ((8, 8), (16, 16), "16 x 16"),
    ):
        data = tiff(*size, large, compression, tile)
        with pytest.raises(ImageError, match=message.format(place)):
            read(data)
        assert "missing and black" in read(data, salvage=True).notes[0]


def test_rows_of_a_last_block_may_be_left_over() -> None:
    data = tiff(37, 48, bytes(imagecodecs.jpeg_encode(ramp(48, 48))), 7)
    assert read(data).pixels.shape == (37, 48, 3)


def test_the_limit_counts_a_tile_larger_than_the_picture() -> None:
    data = tiff(8, 8, bytes(16 * 32 * 3), 1, (16, 32))
    assert probe(data, max_pixels=512).coded == 512
    with pytest.raises(ImageError, match="512 pixels, of which 8 x 8 are shown, exceed the limit"):
        probe(data, max_pixels=511)


def test_a_webp_that_pillow_finds_too_large_is_not_called_damaged() -> None:
    stream = io.BytesIO()
    Image.fromarray(ramp(8, 8)).save(stream, "WEBP", lossless=True)
    file = bytearray(stream.getvalue())
    at = file.index(b"VP8L") + 9  # 14 bits each for width − 1 and height − 1
    file[at : at + 4] = (0xFFFFFFF | file[at + 3] >> 4 << 28).to_bytes(4, "little")
    with pytest.raises(ImageError, match="Pillow opens no WebP file as large as this; convert"):
        probe(bytes(file))
