"""The wooden board of the picture: hollows for the spheres, trays, engraved coordinates."""

from __future__ import annotations

import functools
import math
from typing import Final

import numpy as np

from pylos_env.render.scene import (
    EXTENT,
    FOCUS,
    HALFWAY,
    LIGHT,
    RADIUS,
    SKY,
    SUN,
    SURFACE,
    TRAY_PITCH,
    TRAY_ROWS,
    TRAY_SCALE,
    TRAY_SIZES,
    Array,
    ground_points,
    mix,
    planes,
    screen,
    smooth,
)

HALF_WIDTH: Final = 2.66
HALF_DEPTH: Final = 3.63
THICKNESS: Final = 0.34
LABEL_HEIGHT: Final = 0.26
CORNER: Final = 0.30
RIM: Final = math.sqrt(RADIUS**2 - SURFACE**2)
"""Radius of the hollow that a sphere leaves in the board's surface."""
LABEL_EDGE: Final = 2.33
"""Distance of the coordinates from the middle of the cells."""

TABLE: Final = (0.66, 0.65, 0.62)
WOOD: Final = ((0.42, 0.195, 0.075), (0.27, 0.105, 0.036))
INLAY: Final = (0.62, 0.40, 0.18)
ENGRAVING: Final = (0.085, 0.032, 0.012)

_SMALL: Final = 400
"""Pictures below this size are sampled twice a side: their engraving is finer than a pixel."""
_GLYPHS: Final = {
    "0": "0e11111111110e",
    "1": "040c040404040e",
    "2": "0e11010204081f",
    "3": "1f02040201110e",
    "4": "02060a121f0202",
    "5": "1f101e0101110e",
    "6": "0608101e11110e",
    "7": "1f010204080808",
    "8": "0e11110e11110e",
    "9": "0e11110f01020c",
    "a": "00000e010f110f",
    "b": "1010161911111e",
    "c": "00000e1010110e",
    "d": "01010d1311110f",
}
"""Seven rows of five dots, a byte a row."""


def text_cover(text: str, right: Array, down: Array) -> Array:
    """How much of `text` covers points given in letter heights from its middle."""
    columns = 6 * len(text) - 1
    dots = np.zeros((9, columns + 2), dtype=np.float32)
    for index, letter in enumerate(text):
        for row, bits in enumerate(bytes.fromhex(_GLYPHS[letter]), start=1):
            for col in range(5):
                dots[row, 6 * index + 1 + col] = bits >> (4 - col) & 1
    x = np.clip(right * 7 + (columns + 1) / 2, 0, columns + 0.999)
    y = np.clip(down * 7 + 4, 0, 7.999)
    left, above = x.astype(np.int64), y.astype(np.int64)
    u, v = x - left, y - above
    top = dots[above, left] * (1 - u) + dots[above, left + 1] * u
    bottom = dots[above + 1, left] * (1 - u) + dots[above + 1, left + 1] * u
    return smooth(0.3, 0.62, top * (1 - v) + bottom * v)


def rounded_box(x: Array, y: Array, width: float, height: float, corner: float) -> Array:
    """Distance to a rounded rectangle with these half sides; negative inside."""
    right, below = np.abs(x) - width + corner, np.abs(y) - height + corner
    beyond = np.hypot(np.maximum(right, 0), np.maximum(below, 0))
    return np.asarray(beyond + np.minimum(np.maximum(right, below), 0) - corner)


@functools.lru_cache(maxsize=4)
def background(size: int) -> Array:
    """[3, size, size]: the empty board on its table, in linear light."""
    samples = 2 if size < _SMALL else 1
    count = size * samples
    right, down = screen(count)

    def distance(height: float) -> Array:
        points = ground_points(right, down, height)
        y = points[..., 1] - FOCUS[1]
        return rounded_box(points[..., 0], y, HALF_WIDTH, HALF_DEPTH, CORNER)

    top = distance(SURFACE)
    side = top
    for part in range(1, 7):
        side = np.minimum(side, distance(SURFACE - THICKNESS * part / 6))
    picture = _table(right, down)
    edge = mix(*WOOD, np.full_like(right, 0.8)) * (0.9 * SKY + 0.22 * SUN)
    points = ground_points(right, down, SURFACE)
    surface = _surface(points[..., 0], points[..., 1], top)
    for layer, outside in ((edge, side), (surface, top)):
        covered = np.clip(0.5 - outside * (count / EXTENT), 0, 1)[..., None]
        picture = picture + (layer - picture) * covered
    blocks = picture.reshape(size, samples, size, samples, 3)
    return planes(blocks.mean(axis=(1, 3)))


def _table(right: Array, down: Array) -> Array:
    points = ground_points(right, down, SURFACE - THICKNESS)
    drift = LIGHT[:2] / LIGHT[2] * np.float32(0.8 * THICKNESS)
    x, y = points[..., 0] + drift[0], points[..., 1] - FOCUS[1] + drift[1]
    shadow = 1 - 0.62 * smooth(0.55, -0.25, rounded_box(x, y, HALF_WIDTH, HALF_DEPTH, 0.4))
    vignette = 1.04 - 0.012 * (right**2 + down**2)
    return np.asarray(np.array(TABLE, dtype=np.float32) * (shadow * vignette)[..., None])


def _surface(x: Array, y: Array, outside: Array) -> Array:
    albedo = mix(*WOOD, _grain(x, y))
    inlay = smooth(0.028, 0.004, np.abs(rounded_box(x, y, 2.09, 2.09, 0.2)))
    albedo = _over(albedo, INLAY, inlay)
    for number, letter in enumerate("abcd"):
        for text, left, below in (
            (letter, number - 1.5, LABEL_EDGE),
            (str(number + 1), -LABEL_EDGE, number - 1.5),
        ):
            here = (np.abs(x - left) < 0.2) & (np.abs(y - below) < 0.2)
            cover = text_cover(
                text, (x[here] - left) / LABEL_HEIGHT, (y[here] - below) / LABEL_HEIGHT
            )
            albedo[here] = _over(albedo[here], ENGRAVING, cover)

    from_x, from_y = _nearest_hollow(x, y)
    reach = np.hypot(from_x, from_y)
    hollow = smooth(RIM + 0.012, RIM - 0.012, reach)
    drop = np.sqrt(np.maximum(RADIUS**2 - reach**2, 0)) + SURFACE
    to_sun = np.hypot(
        from_x + LIGHT[0] / LIGHT[2] * drop, from_y + LIGHT[1] / LIGHT[2] * drop
    )  # where the ray to the sun leaves the hollow: beyond the rim it was blocked
    lit = 1 - 0.75 * hollow * smooth(RIM - 0.04, RIM + 0.05, to_sun)
    sky = 1 - hollow * (0.15 + 0.45 * np.clip(drop / (RADIUS + SURFACE), 0, 1))

    lip = smooth(RIM + 0.05, RIM, reach) * (1 - hollow)
    tilt = (0.6 * lip - hollow * np.minimum(reach, RIM) / RADIUS) / np.maximum(reach, 0.01)
    bevel = 0.7 * smooth(-0.10, 0.0, outside)
    from_middle = y - FOCUS[1]
    sideways = np.abs(x) - HALF_WIDTH > np.abs(from_middle) - HALF_DEPTH
    slope_x = tilt * from_x + np.where(sideways, np.sign(x) * bevel, 0)
    slope_y = tilt * from_y + np.where(sideways, 0, np.sign(from_middle) * bevel)
    upright = np.sqrt(np.maximum(1 - slope_x**2 - slope_y**2, 0.05))
    sun, gloss = (
        np.maximum(slope_x * way[0] + slope_y * way[1] + upright * way[2], 0) * lit
        for way in (LIGHT, HALFWAY)
    )
    direct = albedo * sun[..., None] + 0.05 * gloss[..., None] ** 16
    return np.asarray(albedo * SKY * sky[..., None] + direct * SUN)


def _nearest_hollow(x: Array, y: Array) -> tuple[Array, Array]:
    """Offsets from the middle of the nearest dimple or groove, in diameters of its spheres."""
    grooves = [
        (row, (count - 1) / 2 * TRAY_PITCH)
        for rows in TRAY_ROWS
        for row, count in zip(rows, TRAY_SIZES, strict=True)
    ]
    nearest = np.argmin([np.abs(y - row) for row, _ in grooves], axis=0)
    groove, end = np.moveaxis(np.array(grooves, dtype=np.float32)[nearest], -1, 0)
    in_tray = np.abs(y) > 2.2
    dimple_x, dimple_y = (np.clip(np.floor(axis) + 0.5, -1.5, 1.5) for axis in (x, y))
    from_x = np.where(in_tray, (x - np.clip(x, -end, end)) / TRAY_SCALE, x - dimple_x)
    from_y = np.where(in_tray, (y - groove) / TRAY_SCALE, y - dimple_y)
    return from_x, from_y


def _grain(x: Array, y: Array) -> Array:
    """Planks sawn along x: 0 where the wood is pale, 1 where it is dark."""
    bend = _noise(x * 0.5, y * 1.2, 1) + 0.4 * _noise(x * 1.1 + 7, y * 2.6, 2)
    rings = y * 1.9 + 2.1 * bend
    rings = rings - np.floor(rings)
    late = rings**2 * np.clip((1 - rings) * 6, 0, 1)
    return np.clip(0.2 + 0.5 * late + 0.34 * _noise(x * 2.2, y * 42, 3), 0, 1)


def _noise(x: Array, y: Array, seed: int) -> Array:
    """Smooth random values in 0..1 that change over a distance of 1."""
    table = np.random.default_rng(seed).random((64, 64), dtype=np.float32)
    left, above = np.floor(x), np.floor(y)
    u, v = smooth(0, 1, x - left), smooth(0, 1, y - above)
    col, row = left.astype(np.int64), above.astype(np.int64)
    top = table[row % 64, col % 64] * (1 - u) + table[row % 64, (col + 1) % 64] * u
    below = (row + 1) % 64
    bottom = table[below, col % 64] * (1 - u) + table[below, (col + 1) % 64] * u
    return np.asarray(top * (1 - v) + bottom * v)


def _over(below: Array, colour: tuple[float, float, float], alpha: Array) -> Array:
    return np.asarray(below + (np.array(colour, dtype=np.float32) - below) * alpha[..., None])
