"""The ladder of a run: every checkpoint that was measured, entered as it is saved."""

from __future__ import annotations

from trainers.alphazero.evaluate import Evaluation, Judge, checkpoint_name
from trainers.checkpoints import RunFolder


def enter(folder: RunFolder, found: Evaluation, simulations: int) -> None:
    """Put a checkpoint on the ladder with what was found out about it."""
    assert found.rating is not None
    folder.enter(
        found.step,
        found.label,
        found.win_rates["random"],
        rating=found.rating.elo,
        rating_low=found.rating.low,
        rating_high=found.rating.high,
        oracle_score=found.truth.preserving.rate if found.truth else None,
        simulations=simulations,
    )
    metadata = folder.metadata()
    metadata.add_elo(found.step, found.rating.elo)
    folder.write_metadata(metadata)


def rate_ladder(folder: RunFolder, judge: Judge) -> dict[str, float]:
    """Rate the whole ladder by all games of the run; returns the last checkpoint's figures."""
    if not judge.results:
        return {}
    ratings = judge.ratings()
    manifest = folder.manifest(check_files=False)
    steps = [entry.step for entry in manifest.checkpoints]  # some of a part that was lost
    rated = {
        step: ratings[name][:3] for step in steps if (name := checkpoint_name(step)) in ratings
    }
    manifest = manifest.with_ratings(rated)
    manifest.write()
    last = manifest.checkpoints[-1]
    results = {"eval/win_rate_vs_random": last.win_rate_vs_random}
    if last.rating is not None:
        results["eval/rating"] = last.rating
    if last.oracle_score is not None:
        results["eval/oracle_preserving"] = last.oracle_score
    return results
