// What a click or a key on a cell means: the same for the 3D board, the 2D board and tests.

import { NAMES, RESTING, SUPPORTS } from "./geometry.js";

const SPHERE = { W: "white sphere", B: "black sphere" };

export class Interaction {
  constructor() {
    this.state = null;
    this.selected = null;
    this.enabled = true;
  }

  update(state, enabled) {
    this.state = state;
    this.enabled = enabled;
    if (this.selected !== null && !this.targetsOf(this.selected).length) this.selected = null;
  }

  get legal() {
    return this.enabled && this.state
      ? this.state.legal
      : { place: [], raise: [], remove: [], stop: false };
  }

  targetsOf(cell) {
    return this.legal.raise.filter(([source]) => source === cell).map(([, target]) => target);
  }

  /** Cells by what they offer now. */
  marks() {
    const { place, raise, remove } = this.legal;
    return {
      targets: new Set(this.selected === null ? place : this.targetsOf(this.selected)),
      movable: new Set(raise.map(([source]) => source)),
      removable: new Set(remove),
      selected: this.selected,
    };
  }

  /** The message that activating a cell sends; null where it only selects, undefined where it is
   * idle. */
  activate(cell) {
    const { place, raise, remove } = this.legal;
    const seq = this.state?.seq;
    if (remove.includes(cell)) return { type: "remove", pieces: [cell], seq };
    if (this.selected !== null) {
      const source = this.selected;
      this.selected = null;
      if (this.targetsOf(source).includes(cell)) {
        return { type: "move", kind: "raise", source, target: cell, seq };
      }
      if (cell === source) return null;
    }
    if (raise.some(([source]) => source === cell)) {
      this.selected = cell;
      return null;
    }
    if (place.includes(cell)) return { type: "move", kind: "place", cell, seq };
    return undefined;
  }

  cancel() {
    const had = this.selected !== null;
    this.selected = null;
    return had;
  }
}

/** A cell in words, for screen readers. */
export function describe(cell, cells, marks) {
  const parts = [NAMES[cell], SPHERE[cells[cell]] ?? "empty"];
  if (marks.selected === cell) parts.push("selected");
  else if (marks.removable.has(cell)) parts.push("can be taken back");
  else if (marks.targets.has(cell)) {
    parts.push(marks.selected === null ? "place here" : `raise ${NAMES[marks.selected]} here`);
  } else if (marks.movable.has(cell)) parts.push("can be raised");
  return parts.join(", ");
}

/** Why activating a cell does nothing. */
export function whyIdle(cell, cells, state) {
  const name = NAMES[cell];
  if (!state || state.phase === "over") return "The game is over.";
  if (state.you === "none") return "You are looking on.";
  if (state.thinking) return "It is the other side's turn.";
  const own = state.turn === "white" ? "W" : "B";
  if (cells[cell] === ".") {
    if (SUPPORTS[cell].some((below) => cells[below] === ".")) {
      return `${name}: the four cells below must be filled first.`;
    }
    if (state.phase === "take_back") return "Take a sphere back, or choose Done.";
    return `${name}: your reserve is empty, raise a sphere instead.`;
  }
  if (cells[cell] !== own) return `${name} holds the other side's sphere.`;
  if (RESTING[cell].some((above) => cells[above] !== ".")) return `${name}: another sphere rests on it.`;
  return `${name}: there is no higher place for this sphere now.`;
}
