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

from pylos_env import Outcome, Position, PylosError, Rules, agents, oracle
from pylos_env.geometry import CELL_SYMMETRIES, HIGHER, LINES, RESTING
from pylos_env.kernel import full_squares
from pylos_env.oracle import (
    Oracle,
    OracleError,
    board,
    labels,
    measure,
    passes,
    solve,
    table,
)
from pylos_env.testing import random_game

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
        content = content.replace(b'"format": 2', b'"format": 9', 1)
    elif change == "start":
        assert b'"start": ' in content
        place = content.index(b'"start": ') + 9
        content[place] ^= 1  # another digit: the file still reads
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
        ("format", "has format 9, this version reads 2"),
        ("start", "the header is damaged"),
        ("bit", "block 0 is damaged"),
    ],
)
def test_a_damaged_file_is_refused(
    small_table: Path, tmp_path: Path, change: str, message: str
) -> None:
    with pytest.raises(OracleError, match=message):
        solve.verify(damaged(small_table, tmp_path, change), Rules.of("advanced"), 3)


def test_a_whole_file_is_verified(small_table: Path) -> None:
    assert solve.verify(small_table, Rules.of("advanced"), 3).rules == "advanced"


def test_a_table_of_other_rules_does_not_pass_for_whole(small_table: Path, tmp_path: Path) -> None:
    foreign = table.table_path(Rules.of("mature"), 3, tmp_path)
    foreign.write_bytes(small_table.read_bytes())
    result = run("--rules", "mature", "--levels", "3", "--out", str(tmp_path))
    assert result.returncode == 1
    assert "holds 'advanced' on 3 levels, expected 'mature' on 3" in result.stderr


def test_greedy_rules_have_no_table_and_no_advice_to_build_one(tmp_path: Path) -> None:
    with pytest.raises(OracleError, match="only rules where players choose") as caught:
        Oracle.open("advanced greedy", folder=tmp_path)
    assert "pylos-solve" not in str(caught.value)


def test_a_missing_table_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(OracleError, match=r"pylos-solve --rules 'mature'.*20 minutes"):
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
    opened = Oracle.open(rules, folder=tmp_path)
    with pytest.raises(OracleError, match="is damaged"):
        opened.value(Position.start())


# The labelled positions


NUM_LABELS = {"advanced": 20_000, "children": 3_400, "standard": 3_599, "mature": 4_000}


@pytest.mark.parametrize("rules", NUM_LABELS)
def test_the_shipped_labels_agree_with_themselves(rules: str) -> None:
    """A position's byte is the best of its actions'; actions are those of the rules."""
    found = labels.load_labels(Rules.of(rules))
    assert len(found.packed) == NUM_LABELS[rules]
    assert len(set(found.packed.tolist())) == len(found.packed)
    order = [*range(1, 255, 2), 0, *range(254, 0, -2)]  # from the worst to the best
    for row in range(0, len(found.packed), 7):
        position = Position(int(found.packed[row]), rules)
        after = found.after[found.begin[row] : found.begin[row + 1]].tolist()
        assert len(after) == len(position.legal_actions()) > 1
        assert found.byte[row] == max(after, key=order.index)


@pytest.mark.parametrize("rules", NUM_LABELS)
def test_the_shipped_labels_agree_with_a_search_that_sees_the_end(rules: str) -> None:
    found = labels.load_labels(Rules.of(rules))
    near = np.flatnonzero((found.byte > 0) & (found.byte <= 6))[:80]  # decided within five turns
    assert len(near) == 80
    searcher = agents.AlphaBetaAgent(6)
    for row in near.tolist():
        position = Position(int(found.packed[row]), rules)
        assert searcher.value(position) == found.values[row]


def test_labels_are_spread_over_the_game() -> None:
    found = labels.load_labels(Rules.of("advanced"))
    assert np.bincount(found.spheres, minlength=29)[4:29].min() > 300
    assert (found.source == 0).mean() == 0.5
    assert {value: int((found.values == value).sum()) for value in (1, 0, -1)} == {
        1: 12_000,
        0: 3_000,
        -1: 5_000,
    }


def test_labels_of_other_rules_are_refused() -> None:
    with pytest.raises(OracleError, match=r"no labelled positions for 'squares.*only for advanced"):
        labels.load_labels(Rules.of("squares min=0"))


def test_labels_survive_their_file(tmp_path: Path) -> None:
    found = labels.load_labels(Rules.of("advanced")).every(50)
    path = tmp_path / "labels.npz"
    labels.write_labels(path, found)
    again = labels.read_labels(path)
    assert again.rules == found.rules
    for field in ("packed", "source", "byte", "begin", "after"):
        assert np.array_equal(getattr(again, field), getattr(found, field))
    with np.load(path) as file:
        np.savez(path.with_name("other.npz"), **{**file, "format": np.int64(9)})
    with pytest.raises(OracleError, match="has format 9"):
        labels.read_labels(path.with_name("other.npz"))


def test_the_benchmark_counts_what_was_thrown_away() -> None:
    """Agents that always and never keep the value, and one whose estimates are upside down."""
    found = labels.load_labels(Rules.of("advanced"))
    truth = {}
    for row in range(0, len(found.packed), 10):
        after = labels.values_of(found.after[found.begin[row] : found.begin[row + 1]])
        truth[int(found.packed[row])] = int(found.values[row]), after

    class Known(agents.Agent):
        def __init__(self, good: bool) -> None:
            super().__init__(seed=0)
            self.name = f"known {good}"
            self.good = good

        def act(self, position: Position, key: int | None = None) -> int:
            _, after = truth[position.packed]
            place = after.argmax() if self.good else after.argmin()
            return position.legal_actions()[place]

        def value(self, position: Position) -> float:
            value, _ = truth[position.packed]
            return value / 2 if self.good else -value / 2

    best = oracle.benchmark(Known(True), every=10)
    worst = oracle.benchmark(Known(False), every=10)
    assert best.preserving.rate == best.won.rate == best.drawn.rate == 1
    assert worst.preserving.rate == worst.won.rate == worst.drawn.rate == 0
    assert best.preserving.total == best.won.total + best.drawn.total
    assert best.preserving.total == sum(share.total for share in best.phases.values())
    assert best.preserving.total == sum(share.total for share in best.sources.values())
    assert best.won.total == sum(share.total for share in best.won_by_spheres.values())
    assert best.wrong_sign is not None
    assert worst.wrong_sign is not None
    assert (best.wrong_sign.rate, worst.wrong_sign.rate) == (0, 1)


def test_the_benchmark_of_random_play_is_its_expectation() -> None:
    """What a random player keeps is the share of good actions; within four standard errors."""
    report = oracle.benchmark("random", seed=3)
    found = labels.load_labels(Rules.of("advanced"))
    after = labels.values_of(found.after)
    sizes = np.diff(found.begin)
    good = np.add.reduceat(after == np.repeat(found.values, sizes), found.begin[:-1]) / sizes
    good = good[good < 1]
    assert report.preserving.total == len(good)
    error = np.sqrt((good * (1 - good)).sum()) / len(good)
    assert abs(report.preserving.rate - good.mean()) < 4 * error
    assert report.wrong_sign is None
    assert oracle.benchmark("random", seed=3) == report


def test_stronger_agents_score_higher() -> None:
    names = ["random", "rule_based", "alphabeta:2", "alphabeta:4"]
    rates = [oracle.benchmark(name, every=10).preserving for name in names]
    for weaker, stronger in itertools.pairwise(rates):
        assert weaker.rate < stronger.rate


def test_an_illegal_action_stops_the_benchmark() -> None:
    with pytest.raises(PylosError, match="illegal action 302"):
        oracle.benchmark(lambda position: 302, every=100)


def test_intervals_of_shares() -> None:
    """Wilson's interval for 8 of 10 is 0.490 to 0.943; the ends stay inside."""
    low, high = measure.Share(8, 10).interval
    assert (round(low, 3), round(high, 3)) == (0.49, 0.943)
    assert measure.Share(0, 5).interval[0] == 0
    assert measure.Share(5, 5).interval[1] == 1
    assert measure.Share(0, 0).interval == (0, 1)


def test_the_bench_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert measure.main(["--agent", "random", "--agent", "rule_based", "--every", "50"]) == 0
    out = capsys.readouterr().out
    assert "random, advanced" in out
    assert "rule_based, advanced" in out
    assert "drawn positions" in out
    assert measure.main(["--agent", "nobody"]) == 1
    assert "unknown agent 'nobody'" in capsys.readouterr().err
    assert measure.main(["--agent", "random", "--rules", "squares min=2"]) == 1
    assert "no labelled positions" in capsys.readouterr().err


# The command


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pylos_env.oracle.solve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_solves_verifies_and_refuses(tmp_path: Path) -> None:
    assert run("--levels", "2", "--out", str(tmp_path)).returncode == 0  # advanced
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


def test_a_damaged_save_is_not_gone_on_from(tmp_path: Path) -> None:
    """One flipped bit in what an earlier run has saved: the run begins anew, and ends right."""
    whole = solve.Solver("mature", 3, tmp_path / "whole", report=lambda text: None).solve()
    lines: list[str] = []
    first = solve.Solver("mature", 3, tmp_path / "parts", report=lines.append)

    def report(text: str) -> None:
        lines.append(text)
        first.stop = len(lines) > 9

    first.report = report
    with pytest.raises(KeyboardInterrupt):
        first.solve()
    (partial,) = (tmp_path / "parts").glob("*.partial")
    content = bytearray(partial.read_bytes())
    content[table.HEADER_BYTES + 5000] ^= 2
    partial.write_bytes(content)
    second = solve.Solver("mature", 3, tmp_path / "parts", report=lines.append)
    path = second.solve()
    assert any("is damaged in block 0: beginning anew" in line for line in lines)
    assert path.read_bytes() == whole.read_bytes()


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
    assert solve.verify(path, Rules.of("advanced"), 3)
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


# The small board as a game of its own


def test_the_small_board_is_the_three_level_game(tmp_path: Path) -> None:
    """`levels=3` plays on the upper three levels: its games agree with its table, turn by turn."""
    for rules in ("advanced levels=3", "mature levels=3"):
        solve.Solver(rules, folder=tmp_path, report=lambda text: None).solve()
        small = Oracle.open(rules, folder=tmp_path)
        assert str(small.rules) == rules
        start = Position.start(rules)
        assert start.reserves == (7, 7)
        assert len(start.legal_actions()) == 9
        plain = minimax(Rules.of(rules.removesuffix(" levels=3")))
        empty = plain[frozenset(), frozenset()]
        assert small.distance(start) == empty
        seen = 0
        for seed in range(150):
            for position in random_game(rules, seed).positions():
                if position.take_backs_left or position[29] != ".":
                    continue
                cells = [
                    frozenset(CELLS[cell - 16] for cell in range(16, 30) if mask >> cell & 1)
                    for mask in (position.white, position.black)
                ]
                own, other = cells if position.side == 0 else cells[::-1]
                assert small.distance(position) == plain[own, other]
                ends = ends_of_turns(own, other, Rules.of(rules.removesuffix(" levels=3")))
                assert (position.outcome is Outcome.ONGOING) == bool(ends)
                seen += 1
        assert seen > 2000


@pytest.fixture(scope="module")
def small_oracles(tmp_path_factory: pytest.TempPathFactory) -> list[Oracle]:
    folder = tmp_path_factory.mktemp("small")
    oracles = []
    for rules in ("advanced levels=3", "mature levels=3"):
        solve.Solver(rules, folder=folder, report=lambda text: None).solve()
        oracles.append(Oracle.open(rules, folder))
    return oracles


def test_every_answer_follows_from_the_successors(small_oracles: list[Oracle]) -> None:
    """Value, distance, best actions and verdicts, in the middle of taking back too; and batched."""
    for truth in small_oracles:
        positions = [
            p
            for seed in range(60)
            for p in random_game(truth.rules, seed).positions()
            if p.legal_actions()
        ]
        assert sum(bool(p.take_backs_left) for p in positions) > 100
        packed = np.array([p.packed for p in positions])
        values, distances = truth.values(packed), truth.distances(packed)
        found = truth.label(packed)
        for row, position in enumerate(positions):
            after = {}
            for action in position.legal_actions():
                end = position.play(action)
                value, distance = truth.value(end), truth.distance(end)
                if not end.take_backs_left:
                    value, distance = -value, None if distance is None else distance + 1
                after[action] = value, distance

            def rank(answer: tuple[int, int | None]) -> tuple[int, int]:
                value, distance = answer
                return value, -value * (distance or 0)

            best = max(after.values(), key=rank)
            assert (truth.value(position), truth.distance(position)) == best
            assert (values[row], distances[row]) == (best[0], -1 if best[1] is None else best[1])
            wanted = [action for action, answer in after.items() if answer == best]
            assert truth.best_actions(position) == wanted
            for action, verdict in truth.classify(position).items():
                kept = after[action][0] == best[0]
                keeps = (oracle.Verdict.KEEPS_WIN, oracle.Verdict.KEEPS_DRAW, oracle.Verdict.LOST)
                assert (verdict in keeps) == kept
                assert (verdict is oracle.Verdict.WIN_TO_LOSS) == (best[0] - after[action][0] == 2)
            bytes_after = found.after[found.begin[row] : found.begin[row + 1]].tolist()
            assert bytes_after == [0 if d is None else d + 1 for _, d in after.values()]


@pytest.mark.parametrize(
    "packed",
    [
        1 << 26,  # a sphere in the air
        1,  # on the level that the small board lacks
        0b111111111 << 16,  # nine spheres of one side
        (1 << 16) | (1 << 46),  # two spheres on one cell
        -1,
    ],
)
def test_impossible_positions_have_no_value(small_oracles: list[Oracle], packed: int) -> None:
    with pytest.raises(OracleError, match=r"row 1: .* is no position under 'advanced levels=3'"):
        small_oracles[0].values(np.array([0, packed]))


@pytest.mark.parametrize("packed", [np.array([0.5]), np.zeros((2, 2), np.int64), np.int64(0)])
def test_only_rows_of_integers_are_answered(small_oracles: list[Oracle], packed: object) -> None:
    with pytest.raises(OracleError, match="expected packed positions as integers"):
        small_oracles[0].values(packed)  # type: ignore[arg-type]


def test_estimates_may_be_missing_for_some_positions() -> None:
    class Sometimes(agents.RuleBasedAgent):
        def value(self, position: Position) -> float | None:
            return 0.5 if position.packed % 2 else None

    report = oracle.benchmark(Sometimes(1), every=100)
    found = labels.load_labels(Rules.of("advanced")).every(100)
    odd = (found.packed % 2 == 1) & (found.values != 0)
    assert report.wrong_sign is not None
    assert report.wrong_sign.total == odd.sum()
    assert report.wrong_sign.hits == (found.values[odd] == -1).sum()


def test_the_perfect_agent_plays_the_small_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYLOS_ORACLE", str(tmp_path))
    with pytest.raises(OracleError, match=r"pylos-solve --rules 'advanced levels=3'  \(seconds"):
        agents.make("perfect").act(Position.start("advanced levels=3"))
    solve.Solver("advanced levels=3", report=lambda text: None).solve()
    truth = Oracle.open("advanced levels=3")
    for seed in range(20):
        position = Position.start("advanced levels=3")
        winner = position.side if truth.value(position) == 1 else 1 - position.side
        players = [agents.make("rule_based", seed=seed), agents.make("rule_based", seed=seed)]
        players[winner] = agents.make("perfect", seed=seed)
        for _ in range(200):
            if position.outcome is not Outcome.ONGOING:
                break
            position = position.play(players[position.side].act(position))
        assert position.outcome is (Outcome.WHITE_WINS, Outcome.BLACK_WINS)[winner]
