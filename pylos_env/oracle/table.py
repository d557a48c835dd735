"""The file of a solved rule set: a header, then a byte for each index (see `passes`).

The header names the format, the rules, the board and the size, and has a checksum for every
mebibyte of the table. Opening a file checks the header and the length; each block is checked when
it is first read, so that a damaged file cannot give an answer.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zlib
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from pylos_env.errors import PylosError
from pylos_env.oracle.passes import Table
from pylos_env.rules import Rules

MAGIC: Final = b"pylos oracle\n"
FORMAT: Final = 2
HEADER_BYTES: Final = 1 << 16
BLOCK_BITS: Final = 20
BLOCK: Final = 1 << BLOCK_BITS


class OracleError(PylosError):
    """A table that is missing, damaged, or of another rule set."""


class Header(NamedTuple):
    """What a file says of itself."""

    format: int
    rules: str
    code: int
    levels: int
    size: int
    start: int  # the byte of the empty board
    checksums: list[int]  # of every block


def default_folder() -> Path:
    """Where tables live: `PYLOS_ORACLE`, or `pylos-env/oracle` in the user's cache folder."""
    if "PYLOS_ORACLE" in os.environ:
        return Path(os.environ["PYLOS_ORACLE"])
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "pylos-env" / "oracle"


def table_path(rules: Rules, levels: int | None = None, folder: str | Path | None = None) -> Path:
    """The file of a rule set, on its own board or on one with so many levels."""
    name = str(dataclasses.replace(rules, levels=4)).replace(" ", "+")
    return Path(folder or default_folder()) / f"{name}-{levels or rules.levels}.table"


def checksum(table: Table, block: int) -> int:
    return zlib.crc32(table[block * BLOCK : (block + 1) * BLOCK].data)


def write_header(path: Path, header: Header) -> None:
    """Write the header of a file whose table is already there, and see it all to the disk."""
    text = MAGIC + json.dumps({**header._asdict(), "seal": _seal(header)}).encode()
    if len(text) > HEADER_BYTES:
        raise ValueError("the header does not fit")
    with path.open("r+b") as file:
        file.write(text.ljust(HEADER_BYTES, b"\0"))
        file.flush()
        os.fsync(file.fileno())


def read_header(path: Path) -> Header:
    """The header of a file; refuses what is no table, or of another length or format."""
    with path.open("rb") as file:
        text = file.read(HEADER_BYTES)
    if not text.startswith(MAGIC):
        raise OracleError(f"{path} is no oracle table: it begins with {text[:12]!r}")
    try:
        fields: dict[str, Any] = json.loads(text[len(MAGIC) :].rstrip(b"\0"))
        seal = fields.pop("seal", None)
        header = Header(**fields)
    except (ValueError, TypeError) as error:
        raise OracleError(f"{path}: the header is damaged: {error}") from None
    if header.format != FORMAT:
        raise OracleError(f"{path} has format {header.format}, this version reads {FORMAT}")
    if seal != _seal(header):
        raise OracleError(f"{path}: the header is damaged; build the table again")
    length = path.stat().st_size
    if length != HEADER_BYTES + header.size:
        raise OracleError(
            f"{path} is {length:,} bytes long, expected {HEADER_BYTES + header.size:,}: "
            "it was cut off; build it again"
        )
    return header


def _seal(header: Header) -> int:
    """A checksum of the header's own fields."""
    return zlib.crc32(json.dumps(header).encode())


def check_header(path: Path, header: Header, rules: Rules, levels: int) -> None:
    """Refuse a table of another rule set or board."""
    if (header.code, header.levels) != (dataclasses.replace(rules, levels=4).code, levels):
        raise OracleError(
            f"{path} holds '{header.rules}' on {header.levels} levels, "
            f"expected '{dataclasses.replace(rules, levels=4)}' on {levels}"
        )


def map_table(path: Path, header: Header) -> Table:
    table: Table = np.memmap(path, dtype=np.uint8, mode="r", offset=HEADER_BYTES)
    assert len(table) == header.size
    return table
