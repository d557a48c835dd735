"""Hints, evaluations and the exact truth about positions and whole games.

The judge is the strongest network that plays the rules, or a search where there is none; the truth
comes from a solved table where one exists.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, cast

import numpy as np

from pylos_env.agents import AlphaBetaAgent
from pylos_env.geometry import STOP
from pylos_env.oracle import Oracle, Verdict
from pylos_env.position import SIDE_NAMES, WHITE, Outcome, Position
from pylos_web.levels import Levels
from pylos_web.messages import Analysis, Hint, JudgedMove, Review, ReviewPoint, Value
from pylos_web.thinking import Guard
from trainers.play.advice import HINT_DEPTH, Adviser
from trainers.play.game import Game

Choose = Callable[[Position, int, Guard], int]
"""An action for a position, by a key of chance."""
REVIEW_DEPTH: Final = 4
BAD_SWING: Final = 0.6
"""How much of an estimate one action may cost before it counts as a mistake."""
MISTAKES: Final = {
    (1, 0): Verdict.WIN_TO_DRAW,
    (1, -1): Verdict.WIN_TO_LOSS,
    (0, -1): Verdict.DRAW_TO_LOSS,
}
"""Exact value for the mover before and after -> what the action did."""


class Analyst:
    """Answers for all connections; called from any thread."""

    def __init__(self, levels: Levels, adviser: Adviser | None = None) -> None:
        self._levels = levels
        self._adviser = adviser or Adviser()
        self._local = threading.local()

    def hint(self, game: Game, seq: int, key: int, guard: Guard) -> Hint:
        """The rest of the turn as the adviser would play it."""
        position = after = game.position
        actions, moves = list[int](), list[str]()
        who, best = self._advice(position)
        while after.side == position.side and after.outcome is Outcome.ONGOING:
            guard.check()
            actions.append(best(after, key, guard))
            moves.append(after.move_name(actions[-1]))
            after = after.play(actions[-1])
        text = position.actions_text(actions)
        if len(actions) > 1 and actions[-1] == STOP and not position.take_backs_left:
            text += ", then stop"
        return Hint(seq=seq, actions=actions, moves=moves, text=f"{text} ({who})")

    def analyse(self, game: Game, seq: int, ply: int, guard: Guard) -> Analysis:
        """A position's estimate, its truth, and both for every legal action, best first."""
        position = game.positions[ply]
        sign = 1 if position.side == WHITE else -1
        judge, estimate, moves = self._judge(position, guard)
        value = distance = None
        oracle = self._adviser.oracle(position.rules)
        if oracle is not None:
            value, distance = oracle.value(position) * sign, oracle.distance(position)
            moves = _with_truth(oracle, position, moves)
        return Analysis(
            seq=seq,
            ply=ply,
            turn=SIDE_NAMES[position.side],
            estimate=None if estimate is None else estimate * sign,
            judge=judge,
            value=cast(Value | None, value),
            distance=distance,
            exact=self._adviser.exact(position),
            moves=sorted(moves, key=_order),
        )

    def review(self, game: Game, seq: int, guard: Guard) -> Review:
        """The value of every position of a game, and which actions gave something away."""
        rules = game.position.rules
        oracle = self._adviser.oracle(rules)
        packed = np.array([position.packed for position in game.positions], dtype=np.int64)
        signs = [1 if position.side == WHITE else -1 for position in game.positions]
        if oracle is not None:
            values = [float(value) for value in oracle.values(packed)]
            distances = [None if d < 0 else int(d) for d in oracle.distances(packed)]
            judge = "the solved table"
        else:
            judge, values = self._values(game, guard)
            distances = [None] * len(values)
        points = []
        for ply, (value, sign, distance) in enumerate(zip(values, signs, distances, strict=True)):
            mistake = None
            if ply:
                before = values[ply - 1]
                after = value * sign * signs[ply - 1]
                mistake = _mistake(before, after, oracle is not None)
            points.append(
                ReviewPoint(ply=ply, white=value * sign, distance=distance, mistake=mistake)
            )
        return Review(seq=seq, exact=oracle is not None, judge=judge, points=points)

    # Inside

    def _advice(self, position: Position) -> tuple[str, Choose]:
        """Who knows best what to play here, and their choice."""
        if oracle := self._adviser.oracle(position.rules):

            def perfect(after: Position, key: int, _: Guard) -> int:
                best = oracle.best_actions(after)
                return best[key % len(best)]

            return f"exact: {self._adviser.exact(position)}", perfect
        if analyst := self._levels.analyst(position.rules):
            level, thinker = analyst
            return level.label, lambda after, key, guard: thinker.think(after, key, guard).action
        searcher = self._searcher(HINT_DEPTH)
        return f"a search {HINT_DEPTH} turns deep", lambda after, key, _: searcher.act(after, key)

    def _searcher(self, depth: int) -> AlphaBetaAgent:
        """A search's table belongs to one thread."""
        found: dict[int, AlphaBetaAgent] = self._local.__dict__.setdefault("searchers", {})
        if depth not in found:
            found[depth] = AlphaBetaAgent(depth, seed=0)
        return found[depth]

    def _judge(
        self, position: Position, guard: Guard
    ) -> tuple[str, float | None, list[JudgedMove]]:
        """Who judges, what they think for the side to move, and their preference."""
        names = {action: position.move_name(action) for action in position.legal_actions()}
        analyst = self._levels.analyst(position.rules)
        if not names:
            return "the rules", -1.0, []
        if analyst is None:
            searcher = self._searcher(HINT_DEPTH)
            moves = [self._estimated(position, action, guard) for action in names]
            return f"a search {HINT_DEPTH} turns deep", searcher.value(position), moves
        level, thinker = analyst
        thought = thinker.think(position, 0, guard)
        if thought.shares is None:
            raise AssertionError("a network has shares")
        shares = thought.shares
        return (
            f"the network of {level.label}",
            thought.value,
            [
                JudgedMove(action=action, move=name, share=round(float(shares[action]), 4))
                for action, name in names.items()
            ],
        )

    def _estimated(self, position: Position, action: int, guard: Guard) -> JudgedMove:
        guard.check()
        after = position.play(action)
        sign = -1 if after.side != position.side else 1
        over = after.outcome is not Outcome.ONGOING
        value = -1.0 if over else self._searcher(REVIEW_DEPTH).value(after)
        name = position.move_name(action)
        return JudgedMove(action=action, move=name, estimate=round(sign * value, 3))

    def _values(self, game: Game, guard: Guard) -> tuple[str, list[float]]:
        """Estimates of every position for its side to move."""
        analyst = self._levels.analyst(game.position.rules)
        searcher = self._searcher(REVIEW_DEPTH)
        values = []
        for position in game.positions:
            guard.check()
            if position.outcome is not Outcome.ONGOING:
                values.append(-1.0)
            elif analyst is None:
                values.append(searcher.value(position))
            else:
                values.append(float(analyst[1].evaluator(np.array([position.packed]))[1][0]))
        if analyst is None:
            return f"a search {REVIEW_DEPTH} turns deep", values
        return f"the network of {analyst[0].label}", values


def _with_truth(oracle: Oracle, position: Position, moves: list[JudgedMove]) -> list[JudgedMove]:
    verdicts = oracle.classify(position)
    found = []
    for move in moves:
        after = position.play(move.action)
        passed = after.side != position.side
        distance = oracle.distance(after)
        found.append(
            move.model_copy(
                update={
                    "value": oracle.value(after) * (-1 if passed else 1),
                    "distance": None if distance is None else distance + passed,
                    "verdict": verdicts[move.action].value,
                }
            )
        )
    return found


def _order(move: JudgedMove) -> tuple[float, float, float]:
    """Quick wins first, then draws, then long resistance; without the truth by preference."""
    value, distance = move.value or 0, move.distance or 0
    return -value, distance * value, -(move.share or move.estimate or 0.0)


def _mistake(before: float, after: float, exact: bool) -> str | None:
    if not exact:
        return "loses ground" if before - after > BAD_SWING else None
    verdict = MISTAKES.get((int(before), int(after)))
    return verdict.value if verdict else None
