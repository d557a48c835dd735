// What is said: the status line, and the announcements that screen readers speak.

import { cellList } from "./history.js";

const NAME = { white: "White", black: "Black" };

export function stepText(step) {
  const who = step.mover === "W" ? "White" : "Black";
  if (step.kind === "place") return `${who} places ${step.text}`;
  if (step.kind === "raise") return `${who} raises ${step.text.replace("-", " to ")}`;
  if (step.kind === "remove") return `${who} takes ${step.text.slice(1)} back`;
  return `${who} takes nothing more back`;
}

export function resultText(state) {
  const { winner, reason } = state.result;
  if (winner === null) return "Nobody wins: the game was stopped after too many moves.";
  const loser = winner === "white" ? "Black" : "White";
  if (reason === "resigned") return `${loser} resigns: ${winner} wins.`;
  const placed = state.board.split(" ")[0].at(-1) !== ".";
  return placed
    ? `${NAME[winner]} places the last sphere and wins.`
    : `${loser} cannot move: ${winner} wins.`;
}

/** How things stand, in a sentence. */
export function statusText(state) {
  if (state.phase === "over") return resultText(state);
  const player = state.players[state.turn];
  const who = NAME[state.turn];
  if (player.kind === "ai") {
    if (state.paused) return `Paused: ${state.turn} (${player.name}) is to move.`;
    return `${who} (${player.name}) is thinking ...`;
  }
  const yours = state.you === state.turn ? "Your turn" : `${who} to move`;
  if (state.phase === "take_back") {
    const count = state.take_backs_left;
    const what = count === 2 ? "up to two spheres" : "one more sphere";
    const rest = state.legal.stop ? ", or choose Done." : ".";
    const who2 = state.you === "none" ? who : state.you === state.turn ? "You" : who;
    return `A formation! ${who2} may take back ${what}${rest}`;
  }
  if (state.you === "none") return `${who} to move.`;
  return state.reserves[state.turn] === 0
    ? `${yours}: the reserve is empty, raise a sphere.`
    : `${yours}: place a sphere or raise one.`;
}

/** What just happened and what is to do, to be spoken. */
export function announcement(steps, state) {
  const said = steps.map(stepText);
  if (state.phase === "over") {
    said.push(resultText(state));
    if (state.result.winner && state.you === state.result.winner) said.push("You win!");
  } else if (state.legal.remove.length > 0) {
    said.push(`A formation: you may take back ${cellList(state.legal.remove)}`);
  } else if (state.legal.place.length + state.legal.raise.length > 0) {
    said.push(state.you === "both" ? `${NAME[state.turn]} to move` : "Your turn");
  }
  return said.map((text) => (text.endsWith(".") || text.endsWith("!") ? text : `${text}.`)).join(" ");
}
