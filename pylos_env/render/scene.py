"""The camera, the light and the spheres of the picture that `render.rgb_array` draws.

One unit is a sphere's diameter; x runs along a row (to column d), y down a column (to row 4,
towards the viewer), z up; the origin is the middle of level 1's sphere centres. The camera is
orthographic: every sphere projects to the same disc, so a shaded sprite drawn back to front is
exact. What one sphere does to another's light depends only on the offset between the two, so these
maps are computed once too. Colours are linear light; what is shown is their square root.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pylos_env.geometry import CELLS

Array = npt.NDArray[np.floating[Any]]
Vector = tuple[float, float, float]

YAW: Final = math.radians(9.0)
ELEVATION: Final = math.radians(59.0)
"""Of the angles tried over random games, among those that leave the fewest spheres hidden."""
EXTENT: Final = 7.2
"""How many units the picture is wide and high."""
FOCUS: Final = (0.0, 0.18, -0.53)
"""The point in the middle of the picture."""

RADIUS: Final = 0.5
SURFACE: Final = -0.36
"""Height of the board's top: the spheres of level 1 sink into dimples."""
TRAY_SCALE: Final = 0.5
"""Spheres in reserve are drawn smaller, so that the board keeps the room."""
TRAY_PITCH: Final = 0.52
TRAY_SIZES: Final = (8, 7)
"""Spheres in a tray's two grooves, the outer first."""
TRAY_ROWS: Final = ((3.46, 2.93), (-3.10, -2.57))
"""For each side the y of its grooves: white's are in front, leaving room for the letters a-d."""
NUM_GRAINS: Final = 6
_UNSEEN: Final = 0.02
"""Of the light, a loss too small to be drawn."""


def _vector(*parts: float) -> Array:
    return np.array(parts, dtype=np.float32)


def _unit(vector: Array) -> Array:
    return np.asarray(vector / np.linalg.norm(vector))


RIGHT: Final = _vector(math.cos(YAW), -math.sin(YAW), 0)
DOWN: Final = _vector(
    math.sin(YAW) * math.sin(ELEVATION), math.cos(YAW) * math.sin(ELEVATION), -math.cos(ELEVATION)
)
NEAR: Final = _vector(
    math.sin(YAW) * math.cos(ELEVATION), math.cos(YAW) * math.cos(ELEVATION), math.sin(ELEVATION)
)
"""The picture's axes: to the right, downwards, and out of it towards the viewer."""

LIGHT: Final = _unit(-0.46 * RIGHT - 0.50 * DOWN + 0.74 * NEAR)
HALFWAY: Final = _unit(LIGHT + NEAR)
SUN: Final = _vector(0.98, 0.93, 0.84)
SKY: Final = _vector(0.30, 0.33, 0.38)
BOUNCE: Final = _vector(0.16, 0.11, 0.07)
"""Light from the sun, from above and, reflected by the wood, from below."""

WOODS: Final = (
    ((0.94, 0.78, 0.51), (0.82, 0.61, 0.34)),
    ((0.080, 0.036, 0.021), (0.032, 0.014, 0.009)),
)
"""White's maple and black's walnut: the pale and the dark parts of their grain."""


class Sprite(NamedTuple):
    """A sphere as the camera sees it, its light not yet dimmed by neighbours."""

    alpha: Array  # [side, side]
    ambient: Array  # [3, side, side]
    direct: Array  # [3, side, side]


class Shade(NamedTuple):
    """The parts that are left of the light: from all around, and from the sun."""

    ambient: Array  # [rows, columns]
    direct: Array  # [rows, columns]
    shift: tuple[int, int] = (0, 0)
    """Rows and columns from the sphere's middle to that of the arrays."""


def centre(cell: int) -> Vector:
    """The centre of a sphere on the cell."""
    level, row, col = CELLS[cell]
    return col + level / 2 - 1.5, row + level / 2 - 1.5, level / math.sqrt(2)


def tray_centre(seat: int, index: int) -> Vector:
    """The centre of the sphere number `index` in a side's reserve."""
    groove, place = (0, index) if index < TRAY_SIZES[0] else (1, index - TRAY_SIZES[0])
    x = (place - (TRAY_SIZES[groove] - 1) / 2) * TRAY_PITCH
    return x, TRAY_ROWS[seat][groove], SURFACE * (1 - TRAY_SCALE)


def depth(point: Vector) -> float:
    """Nearness to the viewer: of two spheres the one with more of it covers the other."""
    return float(np.dot(NEAR, point))


def pixel(point: Vector, size: int) -> tuple[int, int]:
    """(row, column) at which a point appears in a picture of this size."""
    offset = np.subtract(point, FOCUS)
    down, right = (float(np.dot(axis, offset)) / EXTENT for axis in (DOWN, RIGHT))
    return round(size * (0.5 + down) - 0.5), round(size * (0.5 + right) - 0.5)


def screen(size: int) -> tuple[Array, Array]:
    """Screen coordinates (right, down) of the pixels of a picture of this size."""
    steps = ((np.arange(size, dtype=np.float32) + 0.5) / size - 0.5) * np.float32(EXTENT)
    right, down = (np.float32(np.dot(axis, FOCUS)) + steps for axis in (RIGHT, DOWN))
    across, downwards = np.meshgrid(right, down)
    return across, downwards


def ground_points(right: Array, down: Array, height: float) -> Array:
    """[..., 3]: the points at a height that appear at these screen coordinates."""
    away = (down + height * math.cos(ELEVATION)) / math.sin(ELEVATION)
    x = right * math.cos(YAW) + away * math.sin(YAW)
    y = away * math.cos(YAW) - right * math.sin(YAW)
    return np.stack([x, y, np.full_like(x, height)], axis=-1)


def patch(half: int, unit: float) -> tuple[Array, Array]:
    """Screen coordinates (right, down) of the pixels up to `half` away from a middle one."""
    steps = np.arange(-half, half + 1, dtype=np.float32) / np.float32(unit)
    right, down = np.meshgrid(steps, steps)
    return right, down


def disc(diameter: float) -> tuple[Array, Array, Array]:
    """A sphere's patch in diameters, and how much of each pixel the sphere covers."""
    right, down = patch(math.ceil(diameter / 2) + 1, diameter)
    return right, down, np.clip((RADIUS - np.hypot(right, down)) * np.float32(diameter) + 0.5, 0, 1)


@functools.lru_cache(maxsize=16)
def _normals(diameter: float) -> Array:
    """[side, side, 3]; beyond the edge those of the edge, for its half-covered pixels."""
    right, down, _ = disc(diameter)
    distance = np.maximum(np.hypot(right, down) / RADIUS, 1e-6)
    inward = np.where(distance > 0.999, 0.999 / distance, 1) / RADIUS
    x, y = right * inward, down * inward
    z = np.sqrt(1 - x * x - y * y)
    return np.asarray(x[..., None] * RIGHT + y[..., None] * DOWN + z[..., None] * NEAR)


@functools.lru_cache(maxsize=128)
def sphere(diameter: float, seat: int, grain: int) -> Sprite:
    """A side's sphere; the `NUM_GRAINS` kinds of grain keep it from looking stamped."""
    normals = _normals(diameter)
    albedo = mix(*WOODS[seat], _grain(normals, 2 * grain + seat))
    up = normals[..., 2:] / 2 + 0.5
    facing = np.maximum(normals @ NEAR, 0)[..., None]
    gloss = np.maximum(normals @ HALFWAY, 0)[..., None]
    ambient = albedo * (SKY * up + BOUNCE * (1 - up)) + 0.22 * SKY * up * (1 - facing) ** 4
    shine = 0.55 * gloss**110 + (0.07, 0.035)[seat] * gloss**12
    direct = (albedo * np.maximum(normals @ LIGHT, 0)[..., None] + shine) * SUN
    return Sprite(disc(diameter)[2], planes(ambient), planes(direct))


def _grain(normals: Array, seed: int) -> Array:
    """Year rings around a tilted axis: 0 where they are pale, 1 where they are dark."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    x, y, z = np.moveaxis(normals @ turn, -1, 0)
    wobble = 0.4 * np.sin(2.3 * z + 3 * x + seed) + 0.2 * np.sin(5.1 * y - 3.7 * z)
    rings = np.hypot(x + rng.uniform(0.25, 0.6), y * 0.9) * 4.2 + wobble
    rings -= np.floor(rings)
    return np.asarray(0.1 + 0.7 * rings**1.6 * np.clip((1 - rings) * 5, 0, 1))


@functools.lru_cache(maxsize=1024)
def shade(diameter: float, offset: Vector) -> Shade | None:
    """The light a sphere keeps beside another, `offset` diameters away; None if that is all."""
    normals = _normals(diameter)
    dimmed = _dim(_vector(*offset) - normals * np.float32(RADIUS), normals)
    visible = disc(diameter)[2] > 0
    if np.minimum(dimmed.ambient, dimmed.direct)[visible].min() > 1 - _UNSEEN:
        return None
    return dimmed


@functools.lru_cache(maxsize=64)
def ground_shade(unit: float, height: float, diameter: float) -> Shade:
    """The light the board keeps around a sphere whose centre is at `height`."""
    half = math.ceil(unit * (1.25 * diameter + 1.2 * (height - SURFACE)))
    points = ground_points(*patch(half, unit), SURFACE - height)
    up = np.broadcast_to(_vector(0, 0, 1), points.shape)
    ambient, direct, _ = _dim(-points / np.float32(diameter), up)
    dark = np.minimum(ambient, direct) < 1 - _UNSEEN
    (top, bottom), (left, right) = (
        np.flatnonzero(dark.any(axis=axis))[[0, -1]].tolist() for axis in (1, 0)
    )
    inside = slice(top, bottom + 1), slice(left, right + 1)
    shift = top + (bottom + 1 - top) // 2 - half, left + (right + 1 - left) // 2 - half
    return Shade(ambient[inside], direct[inside], shift)


def _dim(to_sphere: Array, normals: Array) -> Shade:
    """The light kept at points from which a sphere's centre lies `to_sphere` diameters away."""
    square = np.maximum(np.sum(to_sphere**2, axis=-1), 1e-6)
    overhead = np.clip(np.sum(to_sphere * normals, axis=-1) / np.sqrt(square), 0, 1)
    ambient = 1 - 0.85 * overhead * np.minimum(RADIUS**2 / square, 1)
    along = to_sphere @ LIGHT
    beside = np.sqrt(np.maximum(square - along * along, 0))
    blur = 0.05 + 0.10 * np.clip(along, 0, 3)
    covered = smooth(-1, 1, (RADIUS - beside) / blur) * np.clip(along * 8, 0, 1)
    return Shade(ambient.astype(np.float32), (1 - 0.92 * covered).astype(np.float32))


def smooth(low: float, high: float, value: Array) -> Array:
    """0 at `low`, 1 at `high`, without a kink between."""
    t = np.clip((value - low) / (high - low), 0, 1)
    return np.asarray(t * t * (3 - 2 * t))


def mix(first: Vector, second: Vector, t: Array) -> Array:
    """[..., 3]: the colours `t` of the way from the first to the second."""
    start = _vector(*first)
    return np.asarray(start + (_vector(*second) - start) * t[..., None])


def planes(picture: Array) -> Array:
    """[..., 3] -> [3, ...]: apart, a mask goes over the three colours much faster."""
    return np.ascontiguousarray(np.moveaxis(picture, -1, 0), dtype=np.float32)
