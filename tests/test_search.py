"""Tree search: against a plain one, against the truth, and one row at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest

from pylos_env import Position, PylosError, Rules, kernel
from pylos_env.oracle.labels import Labels, load_labels
from trainers.search import Evaluate, Search, SearchConfig, SearchResult, roots, tree

RULES = Rules.of("advanced")
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def uniform(packed: Ints) -> tuple[Floats, Floats]:
    """Knows nothing."""
    return np.zeros((len(packed), 303), np.float32), np.zeros(len(packed), np.float32)


def opinionated(packed: Ints) -> tuple[Floats, Floats]:
    """Some logits and a value that follow from the position alone."""
    logits = np.empty((len(packed), 303), np.float32)
    values = np.empty(len(packed), np.float32)
    for row, position in enumerate(packed.tolist()):
        rng = np.random.default_rng(position)
        logits[row] = rng.normal(size=303)
        values[row] = rng.uniform(-0.8, 0.8)
    return logits, values


def labelled(rows: npt.NDArray[np.bool_] | None = None, count: int = 60) -> tuple[Labels, Ints]:
    labels = load_labels(RULES)
    chosen = np.flatnonzero(np.ones(len(labels.packed), bool) if rows is None else rows)
    return labels, chosen[:count]


# A plain search: objects, recursion, one game


@dataclass
class Node:
    position: Position
    prior: float = 1.0
    children: dict[int, Node] = field(default_factory=dict)
    value: float = 0.0  # the evaluator's
    total: float = 0.0  # of its simulations, for the side to move at the parent
    visits: int = 0
    proven: int = 0
    expanded: bool = False


class PlainSearch:
    """PUCT as the paper has it, by recursion."""

    def __init__(self, position: Position, config: SearchConfig, plies_left: int = 10**9) -> None:
        self.config = config
        self.plies_left = plies_left
        self.repetitions = 0
        self.root = Node(position)
        self.expand(self.root)

    def expand(self, node: Node) -> float:
        logits, values = opinionated(np.array([node.position.packed]))
        legal = node.position.legal_actions()
        scores = logits[0, legal] - logits[0, legal].max()
        shares = np.exp(scores / self.config.prior_temperature)
        shares /= shares.sum()
        for action, share in zip(legal, shares.tolist(), strict=True):
            node.children[action] = Node(node.position.play(action), share)
        node.expanded = True
        node.value = float(values[0])
        return node.value

    def best(self, node: Node) -> Node:
        seen = [child for child in node.children.values() if child.visits]
        visits = sum(child.visits for child in seen)
        mean = (node.value + sum(child.total for child in seen)) / (1 + visits)
        first = mean - self.config.fpu_reduction * math.sqrt(sum(child.prior for child in seen))

        def score(child: Node) -> float:
            worth = child.total / child.visits if child.visits else first
            bonus = self.config.c_puct * child.prior * math.sqrt(visits + 1) / (1 + child.visits)
            same = child.position.side == node.position.side
            lost = child.visits > 0 and child.proven == (-1 if same else 1)
            return worth + bonus - (1000 if lost else 0)

        return max(node.children.values(), key=score)

    def simulate(self, node: Node, path: list[Position]) -> float:
        """The value of one more simulation for the side to move at `node`."""
        if node.proven and node is not self.root:
            return node.proven
        child = self.best(node)
        if child.visits == 0:
            if not child.position.legal_actions():
                value, child.proven = -1.0, -1
            elif len(path) >= self.plies_left:
                value = 0.0
            elif child.position in path:
                self.repetitions += 1
                value = 0.0
            else:
                value = self.expand(child)
        elif child.proven:
            value = child.proven
        elif not child.expanded:
            value = 0.0
        else:
            value = self.simulate(child, [*path, child.position])
        sign = 1 if child.position.side == node.position.side else -1
        child.visits += 1
        child.total += sign * value
        if child.proven and not node.proven:
            outcomes = [
                c.proven * (1 if c.position.side == node.position.side else -1) if c.visits else 0
                for c in node.children.values()
            ]
            if 1 in outcomes:
                node.proven = 1
            elif all(outcome == -1 for outcome in outcomes):
                node.proven = -1
            if node.proven:
                return node.proven
        return sign * value


@pytest.mark.parametrize("plies_left", [10**9, 3])
def test_batched_search_equals_a_plain_one(plies_left: int) -> None:
    """Visits, values and proofs, over decided and drawn positions with and without take-backs."""
    config = SearchConfig(root="puct", simulations=120, dirichlet_fraction=0, temperature=0)
    labels, rows = labelled(count=25)
    drawn = np.flatnonzero((labels.values == 0) & (labels.spheres > 20))[:15]
    packed = labels.packed[np.concatenate([rows, drawn])]
    search = Search(RULES, config, len(packed))
    result = search.run(
        packed, np.zeros(len(packed), np.int64), opinionated, None, np.full(len(packed), plies_left)
    )
    repetitions = 0
    for row, position in enumerate(packed.tolist()):
        plain = PlainSearch(Position.unchecked(position, RULES), config, plies_left)
        for _ in range(config.simulations):
            if plain.root.proven:
                break
            plain.simulate(plain.root, [plain.root.position])
        visits = [child.visits for child in plain.root.children.values()]
        assert result.visits[row, : result.num_legal[row]].tolist() == visits
        assert result.legal[row, : result.num_legal[row]].tolist() == list(plain.root.children)
        assert result.proven[row] == plain.root.proven
        if not plain.root.proven:
            children = plain.root.children.values()
            total = plain.root.value + sum(child.total for child in children)
            assert result.value[row] == pytest.approx(total / (1 + sum(visits)), abs=1e-5)
        repetitions += plain.repetitions
    if plies_left > 100:
        assert repetitions > 0, "no position repeated: the rule was not put to the test"


class PlainGumbel(PlainSearch):
    """The Gumbel root over the same trees: scores as written in the paper, classes by hand."""

    def edges(self) -> list[tuple[int, int]]:
        """Visits and proofs of the root's edges, for its side."""
        side = self.root.position.side
        return [
            (c.visits, c.proven * (1 if c.position.side == side else -1) if c.visits else 0)
            for c in self.root.children.values()
        ]

    def scores(self) -> list[float]:
        children = list(self.root.children.values())
        seen = [child for child in children if child.visits]
        worth = [
            float(proven) if proven else child.total / child.visits if child.visits else None
            for child, (_, proven) in zip(children, self.edges(), strict=True)
        ]
        visits = sum(child.visits for child in seen)
        mixed = self.root.value
        if seen:
            known = sum(c.prior * w for c, w in zip(children, worth, strict=True) if w is not None)
            mixed += visits * known / sum(child.prior for child in seen)
            mixed /= 1 + visits
        scale = (self.config.c_visit + max(c.visits for c in children)) * self.config.c_scale
        logits = [self.config.prior_temperature * math.log(child.prior) for child in children]
        top = max(logits)
        return [
            logit - top + scale * ((mixed if w is None else w) + 1) / 2
            for logit, w in zip(logits, worth, strict=True)
        ]

    def run(self) -> None:
        considered = min(self.config.max_considered, len(self.root.children))
        for wanted in roots.halving_schedule(considered, self.config.simulations):
            if self.root.proven:
                return
            classes = [
                2 if proven == -1 else int(visits != wanted) for visits, proven in self.edges()
            ]
            ranked = sorted(
                range(len(classes)),
                key=lambda i: (classes[i], -self.scores()[i]),
            )
            chosen = list(self.root.children.values())[ranked[0]]
            self.best = lambda node, chosen=chosen: (  # type: ignore[method-assign,misc]
                chosen if node is self.root else PlainSearch.best(self, node)
            )
            self.simulate(self.root, [self.root.position])

    def policy(self) -> list[float]:
        proofs = [proven for _, proven in self.edges()]
        if self.root.proven == 1:
            kept = [proven == 1 for proven in proofs]
        elif self.root.proven == -1:
            kept = [True for _ in proofs]
        else:
            kept = [proven != -1 for proven in proofs]
        scores = self.scores()
        top = max(score for score, keep in zip(scores, kept, strict=True) if keep)
        shares = [
            math.exp(score - top) if keep else 0 for score, keep in zip(scores, kept, strict=True)
        ]
        return [share / sum(shares) for share in shares]


def test_the_gumbel_root_equals_a_plain_one() -> None:
    """Visits, proofs and targets; proven wins, losses and refuted actions among them."""
    config = SearchConfig(simulations=40, gumbel_scale=0, max_considered=8)
    labels, rows = labelled(count=20)
    near = np.flatnonzero((labels.byte > 0) & (labels.byte < 6))[:25]
    packed = labels.packed[np.concatenate([rows, near])]
    result = Search(RULES, config, len(packed)).run(packed, np.arange(len(packed)), opinionated)
    kinds = set()
    for row, position in enumerate(packed.tolist()):
        plain = PlainGumbel(Position.unchecked(position, RULES), config)
        plain.run()
        count = result.num_legal[row]
        assert result.visits[row, :count].tolist() == [visits for visits, _ in plain.edges()]
        assert result.proven[row] == plain.root.proven
        assert result.policy[row, :count].tolist() == pytest.approx(plain.policy(), abs=2e-3)
        kinds.add(plain.root.proven)
        kinds |= {"refuted"} if any(p == -1 for _, p in plain.edges()) else set()
    assert kinds == {0, 1, -1, "refuted"}


# Against the truth


@pytest.mark.parametrize("root", ["gumbel", "puct"])
def test_what_is_proven_is_true(root: str) -> None:
    labels, rows = labelled(count=400)
    search = Search(RULES, SearchConfig(root=root, simulations=150), len(rows))
    result = search.run(labels.packed[rows], rows, uniform)
    found = result.proven != 0
    assert found.sum() > 40
    assert (result.proven[found] == labels.values[rows][found]).all()
    assert (result.value[found] == result.proven[found]).all()


def keeps_value(labels: Labels, row: int, action: int) -> bool:
    legal = Position.unchecked(int(labels.packed[row]), RULES).legal_actions()
    after = int(labels.after[labels.begin[row] + legal.index(action)])
    return (after != 0) == (labels.values[row] != 0) and after & 1 == int(labels.byte[row]) & 1


@pytest.mark.parametrize("root", ["gumbel", "puct"])
@pytest.mark.parametrize("taking_back", [False, True])
def test_a_win_in_sight_is_found(root: str, taking_back: bool) -> None:
    """Won within three turns; also where the winner keeps the turn by taking spheres back."""
    labels = load_labels(RULES)
    taking = labels.packed >> kernel.TAKE_BACK_SHIFT > 0
    near = (labels.byte > 0) & (labels.byte <= 4) & (labels.values == 1)
    _, rows = labelled(near & (taking == taking_back))
    assert len(rows) > 5
    search = Search(RULES, SearchConfig(root=root, simulations=800), len(rows))
    result = search.run(labels.packed[rows], rows, uniform)
    assert (result.proven == 1).mean() > 0.9
    for row, action, proven in zip(rows, result.action, result.proven, strict=True):
        if proven:
            assert keeps_value(labels, int(row), int(action))


@pytest.mark.parametrize("root", ["gumbel", "puct"])
@pytest.mark.parametrize(
    ("drawn", "only"),
    [
        # White wins in 5 turns by raising 2b3 beside its own sphere; every other action loses.
        pytest.param("BBBWBWWBBWBWWBWB/WWBWBBBWW/.W../. w 0", 289, id="win"),
        # White wins in 7 by filling 2b3: a square, so it keeps the turn and takes back.
        pytest.param("WBBWBWBWWBWBWBWB/BWBWBWW.W/B.../. w 0", 23, id="win by keeping the turn"),
        # Black must raise 2b3, or White has won two turns later.
        pytest.param("BBWBBWWWWBBWWWWB/WBBBWWBWB/BB../. b 0", 287, id="defence"),
        # White has four actions, and three of them lose within five turns.
        pytest.param("WWWBWBWBWBBBBBWW/BBWWBBBWW/W.W./. w 0", 295, id="defence on the third level"),
    ],
)
def test_forced_moves_are_found(root: str, drawn: str, only: int) -> None:
    position = Position.parse(drawn)
    config = SearchConfig(root=root, simulations=400, gumbel_scale=0, dirichlet_fraction=0)
    search = Search(RULES, config, 1)
    result = search.run(np.array([position.packed]), np.zeros(1, np.int64), uniform)
    legal = result.legal[0, : result.num_legal[0]].tolist()
    assert legal[int(result.policy[0, : len(legal)].argmax())] == only
    if root == "gumbel":
        assert result.action[0] == only


def num_spheres(packed: int, seat: int) -> int:
    return int(kernel.spheres_of(packed, seat)).bit_count()


def by_reserves(packed: Ints) -> tuple[Floats, Floats]:
    """Every action alike; who has more spheres left stands better."""
    values = [
        (num_spheres(position, 1 - side) - num_spheres(position, side)) / 15
        for position in packed.tolist()
        for side in [kernel.side_of(position)]
    ]
    return np.zeros((len(packed), 303), np.float32), np.array(values, dtype=np.float32)


GOLDEN_TREE = """\
25: 2 x -0.033
  27: 1 x +0.000
27: 2 x -0.033
  25: 1 x +0.000
28: 2 x -0.033
  25: 1 x +0.000
256: 3 x +0.044
  16: 1 x -0.067
  28: 1 x -0.067
257: 3 x +0.044
  16: 1 x -0.067
  27: 1 x -0.067
272: 3 x +0.022
  19: 2 x -0.033
    19: 1 x +0.000
289: 3 x +0.022
  23: 2 x -0.033
    27: 1 x +0.000
294: 3 x +0.044
  24: 1 x -0.067
  27: 1 x -0.067
296: 3 x +0.044
  24: 1 x -0.067
  25: 1 x -0.067
"""


def test_golden_tree() -> None:
    """A whole tree, edge by edge: visits, mean value for the side that chooses, what is proven."""
    position = Position.parse("BBBWBWWBBWBWWBWB/WWBWBBBWW/.W../. w 0")
    config = SearchConfig(root="puct", simulations=24, dirichlet_fraction=0, temperature=0)
    search = Search(RULES, config, 1)
    search.run(np.array([position.packed]), np.zeros(1, np.int64), by_reserves)
    assert drawing(search._trees, tree.ROOT) == GOLDEN_TREE


def test_plies_are_the_depths_of_all_leaves_together() -> None:
    position = Position.parse("BBBWBWWBBWBWWBWB/WWBWBBBWW/.W../. w 0")
    config = SearchConfig(root="puct", simulations=24, dirichlet_fraction=0, temperature=0)
    search = Search(RULES, config, 1)
    result = search.run(np.array([position.packed]), np.zeros(1, np.int64), by_reserves)
    lines = drawing(search._trees, tree.ROOT).splitlines()  # each visit of an edge is a ply down
    assert result.plies[0] == sum(int(line.split(":")[1].split()[0]) for line in lines)


def drawing(trees: tree.Trees, node: int, indent: str = "") -> str:
    """The visited edges below a node, a line each."""
    lines = ""
    first = trees.first_edge[0, node]
    for edge in range(first, first + trees.num_edges[0, node]):
        visits = int(trees.edge_visits[0, edge])
        if not visits:
            continue
        proven = {0: "", 1: " won", -1: " lost"}[int(trees.edge_proven[0, edge])]
        mean = float(trees.edge_value[0, edge]) / visits
        lines += f"{indent}{trees.action[0, edge]}: {visits} x {mean:+.3f}{proven}\n"
        lines += drawing(trees, int(trees.child[0, edge]), indent + "  ")
    return lines


def test_more_simulations_play_better() -> None:
    labels, rows = labelled(load_labels(RULES).spheres > 20, count=1500)
    counted = rows[labels.values[rows] == 1]
    rates = []
    for simulations in (2, 32, 256):
        config = SearchConfig(simulations=simulations, gumbel_scale=0)
        search = Search(RULES, config, len(counted))
        result = search.run(labels.packed[counted], counted, uniform)
        kept = [
            keeps_value(labels, int(row), int(action))
            for row, action in zip(counted, result.action, strict=True)
        ]
        rates.append(np.mean(kept))
    assert rates[0] < rates[1] < rates[2]


def bandit(root: int, worth: Floats) -> Evaluate:
    """An evaluator to which all that follows an action of the root is worth the same.

    `worth` [legal actions of the root] is for the root's side. Logits are `opinionated`.
    """
    known = {root: 0.0}
    arms = {
        kernel.play(root, RULES.code, action): float(value)
        for action, value in zip(legal_actions(root), worth, strict=True)
    }

    def evaluate(packed: Ints) -> tuple[Floats, Floats]:
        for position in packed.tolist():
            for action in legal_actions(position):
                child = kernel.play(position, RULES.code, action)
                known.setdefault(child, arms[child] if position == root else known[position])
        values = [
            known[position] * (1 if kernel.side_of(position) == kernel.side_of(root) else -1)
            for position in packed.tolist()
        ]
        return opinionated(packed)[0], np.array(values, np.float32)

    return evaluate


def legal_actions(position: int) -> list[int]:
    legal = np.empty(kernel.MAX_LEGAL, np.int64)
    return legal[: kernel.write_legal(position, RULES.code, legal)].tolist()


@pytest.mark.parametrize("root", ["gumbel", "puct"])
def test_a_bandits_best_arm_is_found(root: str) -> None:
    """Whatever the policy thinks of it; and the policy to learn from is worth more than before."""
    labels, rows = labelled(labelled()[0].spheres < 12, count=30)
    config = SearchConfig(
        root=root,
        simulations=256,
        max_considered=kernel.MAX_LEGAL,
        gumbel_scale=0,
        dirichlet_fraction=0,
        temperature=0,
    )
    search = Search(RULES, config, 1)
    for row in rows:
        packed = labels.packed[row : row + 1]
        legal = legal_actions(int(packed[0]))
        worth = np.random.default_rng(row).permutation(np.linspace(-0.8, 0.8, len(legal)))
        worth = worth.astype(np.float32)
        result = search.run(packed, rows[:1], bandit(int(packed[0]), worth))
        assert worth[legal.index(int(result.action[0]))] == worth.max()
        prior = np.exp(opinionated(packed)[0][0, legal])
        assert result.policy[0] @ worth > prior @ worth / prior.sum() + 0.3


# One row, one tree


def assert_same_row(one: SearchResult, other: SearchResult, row: int) -> None:
    count = other.num_legal[row]
    assert one.num_legal[0] == count
    assert one.action[0] == other.action[row]
    assert one.value[0] == other.value[row]
    for name in ("legal", "policy", "visits"):
        alone, among = getattr(one, name)[0, :count], getattr(other, name)[row, :count]
        assert alone.tolist() == among.tolist()


@pytest.mark.parametrize("root", ["gumbel", "puct"])
def test_rows_of_a_batch_are_independent(root: str) -> None:
    labels, rows = labelled(count=40)
    config = SearchConfig(root=root, simulations=48)
    simulations = np.where(rows % 2 == 0, 48, 12)
    many = Search(RULES, config, 64)
    many.run(labels.packed[rows][::-1].copy(), rows, uniform)  # trees that were used before
    result = many.run(labels.packed[rows], rows, opinionated, simulations)
    single = Search(RULES, config, 1)
    for row in range(len(rows)):
        part = slice(row, row + 1)
        alone = single.run(labels.packed[rows[part]], rows[part], opinionated, simulations[part])
        assert_same_row(alone, result, row)
        if not alone.proven[0]:
            assert alone.visits.sum() == simulations[row]


def test_a_tree_without_room_for_edges_still_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "EDGES_PER_NODE", 1)
    labels, rows = labelled(count=20)
    config = SearchConfig(root="puct", simulations=300)
    result = Search(RULES, config, 20).run(labels.packed[rows], rows, opinionated)
    unproven = result.proven == 0
    assert unproven.any()
    assert (result.visits[unproven].sum(axis=1) == 300).all()


def test_the_ply_limit_makes_draws() -> None:
    """One ply before the limit nothing but an end of the game has a value."""
    start = np.array([kernel.START])

    def optimist(packed: Ints) -> tuple[Floats, Floats]:
        return np.zeros((len(packed), 303), np.float32), np.full(len(packed), 0.9, np.float32)

    config = SearchConfig(root="puct", simulations=31, dirichlet_fraction=0)
    search = Search(RULES, config, 1)
    key = np.zeros(1, np.int64)
    limited = search.run(start, key, optimist, plies_left=np.array([1]))
    assert limited.value[0] == pytest.approx(0.9 / 32)
    assert limited.proven[0] == 0


def test_nodes_fit_the_simulations() -> None:
    trees = tree.allocate(3, 10)
    assert trees.packed.shape == (3, 10)
    assert trees.action.shape == (3, 10 * tree.EDGES_PER_NODE + kernel.MAX_LEGAL)


# Roots


@pytest.mark.parametrize("considered", range(1, 17))
@pytest.mark.parametrize("simulations", [1, 7, 16, 64, 200])
def test_halving_gives_every_phase_its_share(considered: int, simulations: int) -> None:
    """Each simulation can be served, and the race ends with two equally visited actions."""
    schedule = roots.halving_schedule(considered, simulations)
    assert len(schedule) == simulations
    visits = [0] * considered
    for wanted in schedule:
        assert wanted in visits
        visits[visits.index(wanted)] += 1
    assert sum(visits) == simulations
    if considered > 1 and simulations >= 2 * considered:
        first, second = sorted(visits)[-2:]
        assert abs(first - second) <= 1
        assert min(visits) >= 1


def test_gumbel_variables_have_their_mean_and_spread() -> None:
    values = [-math.log(-math.log(roots.uniform(key, 1, 0))) for key in range(4000)]
    assert np.mean(values) == pytest.approx(0.5772, abs=0.1)
    assert np.std(values) == pytest.approx(math.pi / math.sqrt(6), abs=0.1)


def test_dirichlet_noise_has_its_mean_and_spread() -> None:
    """Sixteen equal actions and alpha 0.3: mean 1/16, variance (1/16)(15/16)/(1 + 4.8)."""
    trees = tree.allocate(1, 2)
    tree.plant(trees, np.array([kernel.START]))
    shares = []
    for key in range(1500):
        trees.used_edges[0] = 0
        tree.expand(trees, 0, 0, RULES.code, np.zeros(303, np.float32), 1.0, np.empty(64, np.int64))
        roots.mix_dirichlet(trees, 0, key, 0.3, 1.0)
        shares.append(trees.prior[0, :16].copy())
    table = np.array(shares)
    assert table.sum(axis=1) == pytest.approx(np.ones(1500), abs=1e-5)
    assert table.mean(axis=0) == pytest.approx(np.full(16, 1 / 16), abs=0.015)
    assert table.var() == pytest.approx((1 / 16) * (15 / 16) / 5.8, rel=0.1)


def test_priors_are_the_softmax_at_their_temperature_and_logits_stay() -> None:
    """So the Gumbel root, which takes logits, is the network's, and what is below it is softer."""
    logits, _ = opinionated(np.array([kernel.START]))
    of_legal = logits[0, :16].astype(np.float64)  # the start's actions
    for temperature in (0.5, 1.0, 2.0):
        trees = tree.allocate(1, 2)
        tree.plant(trees, np.array([kernel.START]))
        tree.expand(trees, 0, 0, RULES.code, logits[0], temperature, np.empty(64, np.int64))
        shares = np.exp(of_legal / temperature)
        assert trees.prior[0, :16] == pytest.approx(shares / shares.sum(), rel=1e-5)
        assert trees.logit[0, :16] == pytest.approx(of_legal - of_legal.max(), rel=1e-5)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature_draws_from_the_visits(temperature: float) -> None:
    """To the power of 1 / temperature; at 0 the most visited is played."""
    config = SearchConfig(
        root="puct", simulations=64, temperature=temperature, dirichlet_fraction=0
    )
    packed = np.full(2000, kernel.START)
    result = Search(RULES, config, 2000).run(packed, np.arange(2000), opinionated)
    drawn = np.bincount(result.action, minlength=16) / 2000
    shares = result.policy[0].astype(np.float64) ** (1 / temperature)
    assert drawn == pytest.approx(shares / shares.sum(), abs=0.04)
    cold = SearchConfig(root="puct", simulations=64, temperature=0, dirichlet_fraction=0)
    most = Search(RULES, cold, 1).run(packed[:1], np.zeros(1, np.int64), opinionated)
    assert most.visits[0, most.action[0]] == most.visits.max()


def test_where_all_visits_were_refuted_the_priors_of_the_others_are_left() -> None:
    trees = tree.allocate(1, 2)
    tree.plant(trees, np.array([kernel.START]))
    tree.expand(trees, 0, 0, RULES.code, np.zeros(303, np.float32), 1.0, np.empty(64, np.int64))
    trees.edge_visits[0, :2] = 3
    trees.edge_proven[0, :2] = tree.PROVEN_LOSS
    policy = np.empty(kernel.MAX_LEGAL, np.float32)
    roots.write_visit_policy(trees, 0, policy)
    assert policy[:16] == pytest.approx([0.0] * 2 + [1 / 14] * 14)


def test_gumbel_noise_draws_from_the_policy_with_one_simulation() -> None:
    """With a single simulation the action with the largest sum of noise and logit is played."""
    config = SearchConfig(simulations=1)
    packed = np.full(4000, kernel.START)
    result = Search(RULES, config, 4000).run(packed, np.arange(4000), opinionated)
    logits = opinionated(packed[:1])[0][0, :16].astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum()
    drawn = np.bincount(result.action, minlength=16) / 4000
    assert drawn == pytest.approx(shares, abs=0.04)


# Refusals


def test_bad_searches_are_refused() -> None:
    search = Search(RULES, SearchConfig(simulations=4), 1)
    start = np.array([kernel.START, kernel.START])
    with pytest.raises(PylosError, match="2 positions for a search of 1"):
        search.run(start, start, uniform)
    with pytest.raises(PylosError, match="expected 1 to 4"):
        search.run(start[:1], start[:1], uniform, np.array([5]))
    with pytest.raises(PylosError, match="1 positions with 2 keys"):
        search.run(start[:1], start, uniform)
    over = Position.parse("WWWWBBBBWWWWBBBB/WWWBBBWWW/BBBB/W b 0").packed
    with pytest.raises(PylosError, match="the game is over"):
        search.run(np.array([over]), np.zeros(1, np.int64), uniform)


@pytest.mark.parametrize("root", ["gumbel", "puct"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("where", ["logits", "value"])
@pytest.mark.parametrize("late", [False, True])
def test_numbers_that_are_not_finite_stop_the_search(
    root: str, bad: float, where: str, late: bool
) -> None:
    """A diverged network is an error, at the root and below, never a move."""

    def diverged(packed: Ints) -> tuple[Floats, Floats]:
        logits, values = uniform(packed)
        if not late or kernel.START not in packed:
            if where == "logits":
                logits[0] = bad
            else:
                values[0] = bad
        return logits, values

    search = Search(RULES, SearchConfig(root=root, simulations=16), 2)
    with pytest.raises(PylosError, match="not finite"):
        search.run(np.zeros(2, np.int64), np.arange(2), diverged)


def test_evaluators_of_another_shape_are_refused() -> None:
    def narrow(packed: Ints) -> tuple[Floats, Floats]:
        return np.zeros((len(packed), 30), np.float32), np.zeros(len(packed), np.float32)

    with pytest.raises(PylosError, match=r"logits \[1, 303\].*got \[1, 30\]"):
        Search(RULES, SearchConfig(), 1).run(np.zeros(1, np.int64), np.zeros(1, np.int64), narrow)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"simulations": 0}, "simulations"),
        ({"root": "ucb"}, "'gumbel' or 'puct'"),
        ({"c_puct": -1.0}, "c_puct"),
        ({"dirichlet_alpha": 0.0}, "dirichlet_alpha"),
        ({"dirichlet_fraction": 1.5}, "dirichlet_fraction"),
        ({"temperature": math.nan}, "temperature"),
        ({"prior_temperature": 0}, "prior_temperature"),
        ({"prior_temperature": math.nan}, "prior_temperature"),
        ({"c_puct": math.inf}, "c_puct"),
        ({"max_considered": 304}, "max_considered"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SearchConfig(**change).check()
