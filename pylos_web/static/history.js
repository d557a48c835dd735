// A game as the page holds it: the boards after every ply, turns as text, records and links.

import { LEVEL_SIZES, NAMES, SPHERES, cellOf } from "./geometry.js";

export const START = "................/........./..../. w 0";

/** What one ply does: which cell is filled, which is emptied, and who did it. */
function parsePly(ply) {
  if (ply === "stop") return { kind: "stop" };
  if (ply.startsWith("x")) return { kind: "remove", source: cellOf(ply.slice(1)) };
  if (ply.includes("-")) {
    const [source, target] = ply.split("-").map(cellOf);
    return { kind: "raise", source, target };
  }
  return { kind: "place", target: cellOf(ply) };
}

function isTakeBack(ply) {
  return ply === "stop" || ply.startsWith("x");
}

/** One snapshot for each position of the game, the start first. */
export function snapshots(start, plies) {
  const [levels, side] = start.split(" ");
  let cells = [...levels.replaceAll("/", "")];
  let mover = side === "w" ? "W" : "B";
  const found = [{ cells, step: null }];
  plies.forEach((ply, index) => {
    if (index > 0 && !isTakeBack(ply)) mover = mover === "W" ? "B" : "W";
    if (index === 0 && isTakeBack(ply)) mover = side === "w" ? "W" : "B";
    const step = { ...parsePly(ply), mover, text: ply };
    cells = [...cells];
    if (step.source !== undefined) cells[step.source] = ".";
    if (step.target !== undefined) cells[step.target] = mover;
    found.push({ cells, step });
  });
  return found;
}

export function reservesOf(cells) {
  const count = (letter) => cells.filter((cell) => cell === letter).length;
  return { white: SPHERES - count("W"), black: SPHERES - count("B") };
}

/** The text of a position of the game: who is on turn there follows from what was played next. */
export function positionAt(state, snaps, ply) {
  const next = snaps[ply + 1]?.step;
  if (!next) return state.board;
  if (ply === 0) return state.start;
  const step = snaps[ply].step;
  const cells = [...snaps[ply].cells];
  const levels = LEVEL_SIZES.map((size) => cells.splice(0, size * size).join("")).join("/");
  const left = !isTakeBack(next.text) ? 0 : isTakeBack(step.text) ? 1 : 2;
  return `${levels} ${next.mover.toLowerCase()} ${left}`;
}

/** The game's turns: text, side, and the ply at which each ends. */
export function turnsOf(start, plies) {
  const turns = [];
  snapshots(start, plies).forEach(({ step }, ply) => {
    if (!step) return;
    const last = turns.at(-1);
    if (isTakeBack(step.text) && last) {
      if (step.text !== "stop") last.text += step.text;
      last.end = ply;
      last.plies.push(ply);
    } else {
      turns.push({ text: step.text, side: step.mover, end: ply, plies: [ply] });
    }
  });
  return turns;
}

/** The game as a record, from what the page knows: for a server that has forgotten it. */
export function recordText(state) {
  const lines = [`[Rules "${state.rules}"]`];
  if (state.start !== START) lines.push(`[Position "${state.start}"]`);
  const texts = turnsOf(state.start, state.plies).map((turn) => turn.text);
  if (state.phase === "take_back" && texts.length > 0) texts[texts.length - 1] += "...";
  if (state.start.split(" ")[1] === "b" && texts.length > 0) texts.unshift("-");
  lines.push("");
  for (let index = 0; index < texts.length; index += 2) {
    lines.push(`${index / 2 + 1}. ${texts.slice(index, index + 2).join(" ")}`);
  }
  const won = state.result && state.result.reason === "won" ? state.result.winner : null;
  lines.push(won === "white" ? "1-0" : won === "black" ? "0-1" : "*", "");
  return lines.join("\n");
}

function address(fields) {
  const parts = Object.entries(fields).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
  return `${location.origin}${location.pathname}#${parts.join("&")}`;
}

export function positionLink(state, board) {
  return address({ rules: state.rules, position: board.replaceAll(" ", "_") });
}

export function gameLink(state) {
  const fields = { rules: state.rules };
  if (state.start !== START) fields.start = state.start.replaceAll(" ", "_");
  fields.game = state.plies.join(",");
  if (state.phase === "take_back") fields.open = 1;
  if (state.result?.reason === "won") fields.won = state.result.winner[0];
  return address(fields);
}

export function watchLink(token) {
  return address({ watch: token });
}

/** What a link asks for, as fields of new_game or watch; null for a plain visit. */
export function readLink(hash) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  if (fields.has("watch")) return { type: "watch", token: fields.get("watch") };
  const rules = fields.get("rules") ?? "advanced";
  const text = (name) => fields.get(name).replaceAll("_", " ");
  if (fields.has("position")) {
    return { type: "new_game", mode: "human_vs_human", rules, position: text("position") };
  }
  if (fields.has("game")) {
    const start = fields.has("start") ? text("start") : START;
    const plies = fields.get("game").split(",").filter(Boolean);
    const phase = fields.has("open") ? "take_back" : "play";
    const winner = { w: "white", b: "black" }[fields.get("won")];
    const result = winner ? { winner, reason: "won" } : null;
    const record = recordText({ rules, start, plies, phase, result });
    return { type: "new_game", mode: "human_vs_human", record };
  }
  return null;
}

export function cellList(cells) {
  return cells.map((cell) => NAMES[cell]).join(", ");
}
