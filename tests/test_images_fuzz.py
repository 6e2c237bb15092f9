"""Whatever bytes come in, the answer is a Picture or one ImageError."""

import io
import random

import pytest

from benchmarks.mutations import SEEDS, mutated
from nelu_cli.errors import ImageError
from nelu_cli.images import Picture, probe, read, write

ROUNDS = 110  # per seed file: about 3000 inputs in all
LIMIT = 10**6  # pixels: no input may ask for more memory than this costs


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
        _check(_outcome(mutated(original, chance)))


@pytest.mark.parametrize("name", SEEDS)
def test_what_survives_mutation_can_be_written_again(name: str) -> None:
    original = SEEDS[name]()
    chance = random.Random(name + " again")
    for _ in range(ROUNDS // 10):
        picture = _outcome(mutated(original, chance))
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
