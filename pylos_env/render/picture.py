"""Drawing one picture: the board, its spheres and their shadows, the marks on top."""

from __future__ import annotations

import functools
import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

import pylos_env.render.board as board
import pylos_env.render.scene as scene
from pylos_env.geometry import NUM_CELLS, SPHERES_PER_PLAYER
from pylos_env.render.scene import Array, Vector

LANDING: Final = (0.30, 0.92, 0.42)
REMOVABLE: Final = (0.95, 0.10, 0.05)
LAST: Final = (1.0, 0.60, 0.05)
MARKED: Final = (0.10, 0.45, 0.98)
GOLD: Final = (1.0, 0.68, 0.14)

_AMBIENT_PART: Final = 0.31
"""Of the light on the board, the part that does not come from the sun."""
_NEIGHBOURHOOD: Final = 2.6
"""Beyond so many diameters a sphere changes another's light by nothing one could see."""
_OPACITY: Final = 0.9
_HALO: Final = 0.025
"""How far the dark edge of a mark reaches, which keeps it visible on pale wood."""
_DARK: Final = (0.02, 0.012, 0.008)
_SIGN_EDGE: Final = 2.33
"""Where a tray has its figures (left) and its signs (right), from the middle."""

_CELL_CENTRES: Final = tuple(scene.centre(cell) for cell in range(NUM_CELLS))
_TRAY_CENTRES: Final = tuple(
    tuple(scene.tray_centre(seat, index) for index in range(SPHERES_PER_PLAYER)) for seat in (0, 1)
)


class Drawing(NamedTuple):
    """What the picture shows."""

    spheres: dict[int, int]  # cell -> whose sphere stands there
    reserves: tuple[int, int]
    leader: int  # the side to move; the winner once the game is over
    won: bool
    take_backs: int
    rings: dict[int, Vector]  # cell -> colour
    chevrons: frozenset[int]


class _Group(NamedTuple):
    """Spheres of one size, near enough to take each other's light."""

    scale: float
    centres: tuple[Vector, ...]
    seats: dict[int, int]  # index of a centre -> whose sphere is there


def draw(drawing: Drawing, size: int) -> npt.NDArray[np.uint8]:
    """[size, size, 3]"""
    unit = size / scene.EXTENT
    groups = [_Group(1.0, _CELL_CENTRES, drawing.spheres)] + [
        _Group(scene.TRAY_SCALE, _TRAY_CENTRES[seat], dict.fromkeys(range(count), seat))
        for seat, count in enumerate(drawing.reserves)
    ]
    picture = _shaded_board(groups, size, unit)
    _draw_signs(picture, drawing, size, unit)
    marks = _marks(drawing, unit)
    for group in groups:
        _draw_spheres(picture, group, marks if group.scale == 1 else {}, size, unit)
    np.minimum(picture, 1, out=picture)
    np.sqrt(picture, out=picture)
    picture *= 255
    picture += 0.5
    return np.ascontiguousarray(np.moveaxis(picture.astype(np.uint8), 0, -1))


def _shaded_board(groups: list[_Group], size: int, unit: float) -> Array:
    ambient, direct = np.ones((2, size, size), dtype=np.float32)
    for group in groups:
        for index in group.seats:
            centre = group.centres[index]
            shade = scene.ground_shade(unit, centre[2], group.scale)
            row, col = scene.pixel(centre, size)
            middle = row + shade.shift[0], col + shade.shift[1]
            there, part = _overlap(middle, shade.ambient.shape, size)
            ambient[there] *= shade.ambient[part]
            np.minimum(direct[there], shade.direct[part], out=direct[there])
    ambient *= _AMBIENT_PART
    direct *= 1 - _AMBIENT_PART
    ambient += direct
    return np.asarray(board.background(size) * ambient)


def _draw_spheres(
    picture: Array,
    group: _Group,
    marks: dict[int, list[tuple[Array, Vector]]],
    size: int,
    unit: float,
) -> None:
    diameter = unit * group.scale
    neighbours = _neighbours(diameter, group.scale, group.centres)
    for index in _back_to_front(group.centres):
        middle = scene.pixel(group.centres[index], size)
        if index in group.seats:
            sprite = scene.sphere(diameter, group.seats[index], 7 * index % scene.NUM_GRAINS)
            ambient, direct = np.ones((2, *sprite.alpha.shape), dtype=np.float32)
            for other, shade in neighbours[index]:
                if other in group.seats:
                    ambient *= shade.ambient
                    np.minimum(direct, shade.direct, out=direct)
            colours = sprite.ambient * ambient
            colours += sprite.direct * direct
            _blend(picture, middle, sprite.alpha, colours)
        for alpha, colour in marks.get(index, ()):
            _blend(picture, middle, alpha, colour)


@functools.cache
def _back_to_front(centres: tuple[Vector, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(centres)), key=lambda index: scene.depth(centres[index])))


@functools.lru_cache(maxsize=16)
def _neighbours(
    diameter: float, scale: float, centres: tuple[Vector, ...]
) -> tuple[tuple[tuple[int, scene.Shade], ...], ...]:
    """For each place, the other places whose spheres take some of its light, and how much."""
    table = []
    for here in centres:
        found = []
        for other, there in enumerate(centres):
            x, y, z = (round((b - a) / scale, 6) for a, b in zip(here, there, strict=True))
            if here != there and math.hypot(x, y, z) < _NEIGHBOURHOOD:
                shade = scene.shade(diameter, (x, y, z))
                if shade is not None:
                    found.append((other, shade))
        table.append(tuple(found))
    return tuple(table)


# Marks on cells


def _marks(drawing: Drawing, unit: float) -> dict[int, list[tuple[Array, Vector]]]:
    marks: dict[int, list[tuple[Array, Vector]]] = {}
    for cell, colour in drawing.rings.items():
        ring = _outline if cell in drawing.spheres else _hollow_ring
        marks[cell] = [(ring(unit, _HALO), _DARK), (ring(unit, 0), colour)]
    for cell in drawing.chevrons:
        marks.setdefault(cell, [])
        marks[cell] += [(_chevron(unit, _HALO), _DARK), (_chevron(unit, 0), LANDING)]
    return marks


@functools.lru_cache(maxsize=16)
def _outline(unit: float, halo: float) -> Array:
    """Along the edge of a sphere."""
    right, down, _ = scene.disc(unit)
    return _stroke(np.abs(np.hypot(right, down) - 0.462), 0.033 + halo, unit)


@functools.lru_cache(maxsize=16)
def _hollow_ring(unit: float, halo: float) -> Array:
    """Lying in the hollow of an empty cell."""
    right, down, _ = scene.disc(unit)
    points = scene.ground_points(right, down, scene.SURFACE)
    return _stroke(np.abs(np.hypot(points[..., 0], points[..., 1]) - 0.155), 0.032 + halo, unit)


@functools.lru_cache(maxsize=16)
def _chevron(unit: float, halo: float) -> Array:
    right, down, _ = scene.disc(unit)
    beside = np.abs(right)
    on_line = np.clip(beside, 0, 0.13)
    return _stroke(np.hypot(beside - on_line, down - 0.7 * on_line + 0.05), 0.03 + halo, unit)


def _stroke(distance: Array, width: float, unit: float) -> Array:
    """The cover of a line of this half width, by the distance from its middle."""
    cover = np.clip((width - distance) * unit + 0.5, 0, 1)
    return np.asarray(_OPACITY * cover, dtype=np.float32)


# Signs on the trays


def _draw_signs(picture: Array, drawing: Drawing, size: int, unit: float) -> None:
    """A frame around the leader's tray, a star or the take-backs left in it; figures in both."""
    _blend(picture, *_tray_frame(size, drawing.leader), GOLD)
    for seat, count in enumerate(drawing.reserves):
        y = sum(scene.TRAY_ROWS[seat]) / 2
        left, right = (scene.pixel((x, y, scene.SURFACE), size) for x in (-_SIGN_EDGE, _SIGN_EDGE))
        _blend(picture, left, _figures(unit, str(count)), board.ENGRAVING)
        if seat == drawing.leader and drawing.won:
            _blend(picture, right, _star(unit), GOLD)
        elif seat == drawing.leader and drawing.take_backs:
            _blend(picture, right, _pips(unit, drawing.take_backs), REMOVABLE)


@functools.lru_cache(maxsize=8)
def _tray_frame(size: int, seat: int) -> tuple[tuple[int, int], Array]:
    """The middle and the cover of a tray's frame."""
    points = scene.ground_points(*scene.screen(size), scene.SURFACE)
    y = points[..., 1] - np.float32(sum(scene.TRAY_ROWS[seat]) / 2)
    outside = board.rounded_box(points[..., 0], y, 2.56, 0.53, 0.22)
    core = np.clip((0.024 - np.abs(outside)) * (size / scene.EXTENT) + 0.5, 0, 1)
    glow = 0.45 * np.exp(-((outside / 0.06) ** 2))
    cover = np.maximum(core, glow).astype(np.float32)
    used = np.flatnonzero(cover.max(axis=1) > 0.004)
    first, end = int(used[0]), int(used[-1]) + 1
    return (first + (end - first) // 2, size // 2), cover[first:end]


def _sign_patch(unit: float) -> tuple[Array, Array]:
    """A patch of the board, in its own coordinates."""
    points = scene.ground_points(*scene.patch(math.ceil(0.4 * unit), unit), 0)
    return points[..., 0], points[..., 1]


@functools.lru_cache(maxsize=64)
def _figures(unit: float, text: str) -> Array:
    x, y = _sign_patch(unit)
    height = board.LABEL_HEIGHT
    return np.asarray(board.text_cover(text, x / height, y / height), dtype=np.float32)


@functools.lru_cache(maxsize=8)
def _star(unit: float) -> Array:
    """Five points: a fold of the plane turns all ten edges into one."""
    x, y = _sign_patch(unit)
    tenth = math.pi / 5
    angle = np.abs((np.arctan2(x, -y) + tenth) % (2 * tenth) - tenth)
    radius = np.hypot(x, y)
    along, beside = radius * np.cos(angle), radius * np.sin(angle)
    tip, notch = 0.20, (0.082 * math.cos(tenth), 0.082 * math.sin(tenth))
    edge_x, edge_y = notch[0] - tip, notch[1]
    inside = (edge_y * (along - tip) - edge_x * beside) / -math.hypot(edge_x, edge_y)
    return np.asarray(np.clip(inside * unit + 0.5, 0, 1), dtype=np.float32)


@functools.lru_cache(maxsize=8)
def _pips(unit: float, count: int) -> Array:
    """One dot, or two, one behind the other."""
    x, y = _sign_patch(unit)
    spread = 0.13 * (count - 1)
    return _stroke(np.hypot(x, np.abs(y) - spread), 0.085, unit)


# Putting patches into the picture


def _overlap(
    middle: tuple[int, int], shape: tuple[int, ...], size: int
) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """Where a patch lies in the picture, and which part of it does."""
    slices = []
    for place, length in zip(middle, shape, strict=False):
        first = place - length // 2
        low, high = max(first, 0), min(first + length, size)
        slices.append((slice(low, high), slice(low - first, high - first)))
    (rows, part_rows), (cols, part_cols) = slices
    return (rows, cols), (part_rows, part_cols)


def _blend(picture: Array, middle: tuple[int, int], alpha: Array, colours: Array | Vector) -> None:
    """Lay a patch of one colour, or of its own [3, rows, columns], over the picture."""
    (rows, cols), part = _overlap(middle, alpha.shape, picture.shape[1])
    layer = np.asarray(colours, dtype=np.float32)
    layer = layer[:, part[0], part[1]] if layer.ndim == 3 else layer[:, None, None]
    below = picture[:, rows, cols]
    below += (layer - below) * alpha[part]
