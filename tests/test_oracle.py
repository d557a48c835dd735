"""Perfect play: the small board against plain minimax, the file, the solver's habits."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pylos_env import Position, PylosError, Rules, agents
from pylos_env.geometry import CELL_SYMMETRIES, HIGHER, LINES, RESTING
from pylos_env.kernel import full_squares
from pylos_env.oracle import Oracle, OracleError, board, passes, solve, table

RULE_SETS = ["children", "standard", "mature", "advanced", "squares lines min=2"]


# The three-level board again, slow and obvious

LEVELS = 3
CELLS = [
    (level, row, col)
    for level in range(LEVELS)
    for row in range(LEVELS - level)
    for col in range(LEVELS - level)
]
BELOW = {
    (level, row, col): (
        [(level - 1, row + dr, col + dc) for dr in (0, 1) for dc in (0, 1)] if level else []
    )
    for level, row, col in CELLS
}
ABOVE = {cell: [other for other in CELLS if cell in BELOW[other]] for cell in CELLS}
TOP = CELLS[-1]
HALF = len(CELLS) // 2
SQUARES = [set(BELOW[cell]) for cell in CELLS if BELOW[cell]]
ROWS = [{(0, line, other) for other in range(3)} for line in range(3)]
COLUMNS = [{(0, other, line) for other in range(3)} for line in range(3)]

Spheres = frozenset[tuple[int, int, int]]
Place = tuple[Spheres, Spheres]  # own, other


def is_free(occupied: Spheres, cell: tuple[int, int, int]) -> bool:
    return not any(above in occupied for above in ABOVE[cell])


def ends_of_turns(own: Spheres, other: Spheres, rules: Rules) -> list[Place | None]:
    """Every position after a turn, seen by the other side; None where the apex was placed."""
    if len(own) == HALF and rules.empty_reserve_loses:
        return []
    formations = (SQUARES if rules.squares else []) + (ROWS + COLUMNS if rules.lines else [])
    occupied = own | other
    moves = []
    for cell in CELLS:
        if cell in occupied:
            continue
        if len(own) < HALF and all(below in occupied for below in BELOW[cell]):
            moves.append((None, cell))
        moves += [
            (source, cell)
            for source in own
            if source[0] < cell[0]
            and is_free(occupied, source)
            and all(below in occupied and below != source for below in BELOW[cell])
        ]
    ends: list[Place | None] = []
    for source, cell in moves:
        after = own - {source} | {cell}
        if cell == TOP:
            ends.append(None)
        elif any(cell in formation and formation <= after for formation in formations):
            ends += [(other, left) for left in taken_back(after, other, rules, 0)]
        else:
            ends.append((other, after))
    return ends


def taken_back(own: Spheres, other: Spheres, rules: Rules, taken: int) -> set[Spheres]:
    free = [cell for cell in own if is_free(own | other, cell)]
    results = {own} if taken >= rules.min_take_back or not free else set()
    if taken < 2:
        for cell in free:
            results |= taken_back(own - {cell}, other, rules, taken + 1)
    return results


def all_positions() -> list[Place]:
    boards = {frozenset[tuple[int, int, int]]()}
    while True:
        grown = {
            occupied | {cell}
            for occupied in boards
            for cell in CELLS[:-1]
            if cell not in occupied and all(below in occupied for below in BELOW[cell])
        }
        if grown <= boards:
            break
        boards |= grown
    return [
        (frozenset(own), occupied - frozenset(own))
        for occupied in boards
        for count in range(max(0, len(occupied) - HALF), min(HALF, len(occupied)) + 1)
        for own in itertools.combinations(sorted(occupied), count)
    ]


def minimax(rules: Rules) -> dict[Place, int | None]:
    """Distance of every position: even lost, odd won, None drawn."""
    ends = {place: ends_of_turns(*place, rules) for place in all_positions()}
    known: dict[Place, int] = {place: 0 for place, after in ends.items() if not after}
    distance = 0
    while True:
        distance += 1
        found = {}
        for place, after in ends.items():
            if place in known:
                continue
            values = [-1 if end is None else known.get(end) for end in after]
            if distance % 2:
                if distance - 1 in values or (distance == 1 and -1 in values):
                    found[place] = distance
            elif all(value is not None and value % 2 == 1 and value > 0 for value in values):
                found[place] = distance
        known |= found
        if not found and distance % 2 == 0:
            return {place: known.get(place) for place in ends}


def ends_on_a_full_board(
    expected: dict[Place, int | None], small: board.Board
) -> tuple[int, int, int]:
    """Won, drawn and lost positions with all cells but the apex filled, up to symmetry."""
    seen: dict[int, int | None] = {}
    for (own, other), distance in expected.items():
        if len(own) + len(other) == len(CELLS) - 1:
            number = board.number_of(small, mask(own | other))
            seen[board.index_of(small, number, mask(own))] = distance
    kinds = [None if distance is None else distance % 2 for distance in seen.values()]
    return kinds.count(1), kinds.count(None), kinds.count(0)


def mask(cells: Spheres) -> int:
    return sum(1 << CELLS.index(cell) for cell in cells)


@pytest.mark.parametrize("rules", RULE_SETS)
def test_the_small_table_equals_plain_minimax_everywhere(rules: str, tmp_path: Path) -> None:
    path = solve.Solver(rules, 3, tmp_path, report=lambda text: None).solve()
    header = table.read_header(path)
    values = table.map_table(path, header)
    small = board.build(3)
    expected = minimax(Rules.of(rules))
    assert len(expected) == 101_621
    for (own, other), distance in expected.items():
        number = board.number_of(small, mask(own | other))
        byte = int(values[board.index_of(small, number, mask(own))])
        assert byte == (0 if distance is None else distance + 1)
    largest = max(solve.count_values(path), key=lambda row: row.spheres)
    assert largest == solve.Counts(13, *ends_on_a_full_board(expected, small))
    empty = expected[frozenset(), frozenset()]
    assert header.start == (0 if empty is None else empty + 1)


def test_the_solvers_board_is_the_games_board() -> None:
    large = board.build(4)
    assert large.cells[:, board.RESTING].tolist() == list(RESTING)
    assert large.cells[:, board.HIGHER].tolist() == list(HIGHER)
    assert large.cells[:, board.LINES :].tolist() == [list(pair) for pair in LINES]
    assert len(large.occupancies) == 141_119  # all 141,120 but the full one with the apex
    assert len(board.classes(large)[0]) == 18_457
    assert large.size == 3_230_191_043
    rng = np.random.default_rng(0)
    for occupied in rng.choice(large.occupancies[:, board.MASK], 200).tolist():
        number = board.number_of(large, occupied)
        assert large.occupancies[number, board.MASK] == occupied
        expected = (0xFFFF | full_squares(occupied)) & ~occupied
        assert large.occupancies[number, board.OPEN] == expected


def test_symmetric_positions_have_one_index() -> None:
    large = board.build(4)
    rng = np.random.default_rng(1)
    for occupied in rng.choice(large.occupancies[:, board.MASK], 300).tolist():
        own = occupied & int(rng.integers(1 << 30))
        indices = set()
        for image in CELL_SYMMETRIES.tolist():
            moved = [
                sum(1 << image[cell] for cell in range(30) if cells >> cell & 1)
                for cells in (occupied, own)
            ]
            indices.add(board.index_of(large, board.number_of(large, moved[0]), moved[1]))
        assert len(indices) == 1


def test_gathering_and_scattering_bits_without_the_instruction() -> None:
    rng = np.random.default_rng(2)
    for value, places in rng.integers(1 << 30, size=(300, 2)).tolist():
        gathered = board._gather_slowly(value, places)
        bits = [value >> bit & 1 for bit in range(30) if places >> bit & 1]
        assert gathered == sum(bit << index for index, bit in enumerate(bits))
        assert board._scatter_slowly(gathered, places) == value & places


# The file


@pytest.fixture(scope="module")
def small_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    return solve.Solver("advanced", 3, folder, report=lambda text: None).solve()


def damaged(small_table: Path, tmp_path: Path, change: str) -> Path:
    content = bytearray(small_table.read_bytes())
    if change == "foreign":
        content[:5] = b"other"
    elif change == "truncated":
        del content[-100:]
    elif change == "header":
        content[20:30] = b"~" * 10
    elif change == "format":
        content = content.replace(b'"format": 1', b'"format": 9', 1)
    else:
        content[-100] ^= 1
    path = tmp_path / small_table.name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("foreign", "is no oracle table"),
        ("truncated", "it was cut off"),
        ("header", "the header is damaged"),
        ("format", "has format 9, this version reads 1"),
        ("bit", "block 0 is damaged"),
    ],
)
def test_a_damaged_file_is_refused(
    small_table: Path, tmp_path: Path, change: str, message: str
) -> None:
    with pytest.raises(OracleError, match=message):
        solve.verify(damaged(small_table, tmp_path, change))


def test_a_whole_file_is_verified(small_table: Path) -> None:
    assert solve.verify(small_table).rules == "advanced"


def test_a_missing_table_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(OracleError, match=r"pylos-solve --rules 'mature'.*quarter of an hour"):
        Oracle.open("mature", folder=tmp_path)


def test_a_table_of_another_board_or_rule_set_is_refused(small_table: Path, tmp_path: Path) -> None:
    for rules in ("advanced", "mature"):
        path = table.table_path(Rules.of(rules), folder=tmp_path)
        path.write_bytes(small_table.read_bytes())
        with pytest.raises(OracleError, match="'advanced' on 3 levels"):
            Oracle.open(rules, folder=tmp_path)


def test_a_bad_block_gives_no_answer(tmp_path: Path) -> None:
    """A four-level file whose blocks are holes: every look-up meets the checksum first."""
    large = board.build(4)
    rules = Rules.of("advanced")
    path = table.table_path(rules, folder=tmp_path)
    with path.open("wb") as file:
        file.truncate(table.HEADER_BYTES + large.size)
    count = -(-large.size // table.BLOCK)
    header = table.Header(table.FORMAT, str(rules), rules.code, 4, large.size, 0, [7] * count)
    table.write_header(path, header)
    oracle = Oracle.open(rules, folder=tmp_path)
    with pytest.raises(OracleError, match="is damaged"):
        oracle.value(Position.start())


# The command


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pylos_env.oracle.solve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_solves_verifies_and_refuses(tmp_path: Path) -> None:
    result = run("--rules", "standard", "--levels", "3", "--out", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "the first player wins in 15 turns" in result.stdout
    again = run("--rules", "standard", "--levels", "3", "--out", str(tmp_path))
    assert "is whole" in again.stdout
    missing = run("--rules", "mature", "--levels", "3", "--out", str(tmp_path), "--verify")
    assert missing.returncode == 1
    assert "no such table" in missing.stderr
    file = tmp_path / "file"
    file.touch()
    for bad in (
        ["--rules", "chess"],
        ["--rules", "mature", "--levels", "5"],
        ["--rules", "advanced greedy"],
        ["--rules", "mature", "--levels", "3", "--threads", "0"],
        ["--rules", "mature", "--levels", "3", "--out", str(file)],
        [],
    ):
        refused = run("--out", str(tmp_path), *bad)
        assert refused.returncode in (1, 2)
        assert "Traceback" not in refused.stderr
    assert "--levels" in run("--help").stdout


@pytest.mark.parametrize("after", [0, 1, 2, 5, 8])
def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path, after: int) -> None:
    whole = solve.Solver("mature", 3, tmp_path / "whole", report=lambda text: None).solve()
    lines: list[str] = []
    first = solve.Solver("mature", 3, tmp_path / "parts", report=lines.append)

    def report(text: str) -> None:
        lines.append(text)
        first.stop = len(lines) > after + 1

    first.report = report
    with pytest.raises(KeyboardInterrupt):
        first.solve()
    second = solve.Solver("mature", 3, tmp_path / "parts", report=lines.append)
    path = second.solve()
    assert any("going on from" in line for line in lines)
    assert path.read_bytes() == whole.read_bytes()


def test_a_save_torn_between_passes_is_mended(tmp_path: Path) -> None:
    """Blocks of later passes under an earlier pass's number, as a kill in mid-save leaves them."""
    whole = solve.Solver("advanced", 3, tmp_path / "whole", report=lambda text: None).solve()
    parts = tmp_path / "parts"
    solver = solve.Solver("advanced", 3, parts, report=lambda text: None)
    lines: list[str] = []

    def report(text: str) -> None:
        lines.append(text)
        solver.stop = len(lines) > 12

    solver.report = report
    with pytest.raises(KeyboardInterrupt):
        solver.solve()
    (progress,) = parts.glob("*.progress")
    state = json.loads(progress.read_text())
    for distance in (2, 3, 4, 7):
        progress.write_text(json.dumps({**state, "distance": distance}))
        copy = tmp_path / f"from{distance}"
        copy.mkdir()
        for path in parts.iterdir():
            (copy / path.name).write_bytes(path.read_bytes())
        again = solve.Solver("advanced", 3, copy, report=lambda text: None).solve()
        assert again.read_bytes() == whole.read_bytes()


def test_two_runs_do_not_fill_one_table(tmp_path: Path) -> None:
    first = solve.Solver("advanced", 3, tmp_path, report=lambda text: None)
    second = solve.Solver("advanced", 3, tmp_path, report=lambda text: None)
    refused = []

    def report(text: str) -> None:
        with pytest.raises(OracleError, match="another run is filling"):
            second.solve()
        refused.append(text)

    first.report = lambda text: report(text) if text.startswith("lost in 2") else None
    path = first.solve()
    assert refused
    assert solve.verify(path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_the_save_of_another_run_is_not_used(tmp_path: Path) -> None:
    path = table.table_path(Rules.of("advanced"), 3, tmp_path)
    path.with_name(path.name + ".partial").write_bytes(b"short")
    path.with_name(path.name + ".progress").write_text('{"format": 1, "code": 3, "distance": 4}')
    lines: list[str] = []
    solve.Solver("advanced", 3, tmp_path, report=lines.append).solve()
    assert any("beginning anew" in line for line in lines)


def test_too_little_memory_or_disk_is_said_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver = solve.Solver("advanced", 3, tmp_path, report=lambda text: None)
    monkeypatch.setattr(solve, "_available_memory", lambda: 1000)
    with pytest.raises(OracleError, match="GB of memory are needed"):
        solver.solve()
    monkeypatch.undo()
    monkeypatch.setattr(solve.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(OracleError, match="GB of disk are needed"):
        solver.solve()


def test_greedy_rules_are_not_solved() -> None:
    with pytest.raises(PylosError, match="players choose"):
        solve.Solver("advanced greedy", 3)


def test_bytes_in_words() -> None:
    assert passes.describe(0) == "draws by endless play"
    assert passes.describe(41) == "loses in 40 turns"
    assert passes.describe(2) == "wins in 1 turns"


# The perfect agent, on a table that knows one thing


class FewAnswers:
    """Stands in for an oracle: of the legal actions the last two are best."""

    def best_actions(self, position: Position) -> list[int]:
        return position.legal_actions()[-2:]


def test_the_perfect_agent_plays_the_best_actions_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Oracle, "open", lambda rules, folder: FewAnswers())
    agent = agents.make("perfect", seed=1)
    chosen = [agent.act(Position.start()) for _ in range(60)]
    assert set(chosen) == {14, 15}
    again = agents.make("perfect", seed=1)
    assert [again.act(Position.start()) for _ in range(60)] == chosen


def test_the_perfect_agent_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYLOS_ORACLE", str(tmp_path))
    with pytest.raises(OracleError, match="pylos-solve --rules 'advanced'"):
        agents.make("perfect").act(Position.start())
