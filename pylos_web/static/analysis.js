// The analysis panel: win bar, moves with shares and exact verdicts, and the course of the game.

import { drawing, element } from "./dom.js";

const SHOWN = 8;
const WIDTH = 320;
const HEIGHT = 96;

export function verdictText(move) {
  if (move.value === null || move.value === undefined) return "";
  if (move.value === 0) return "draws";
  const turns = `${move.distance} turn${move.distance === 1 ? "" : "s"}`;
  return `${move.value > 0 ? "wins" : "loses"} in ${turns}`;
}

const SIGN = { 1: "+", 0: "=", "-1": "\u2212" };
const KIND = { 1: "win", 0: "draw", "-1": "loss" };

export class AnalysisPanel {
  /** `onShow(move or null)` points a move out on the board, `onPly(ply)` looks at a position. */
  constructor(container, { onShow, onPly }) {
    this.onShow = onShow;
    this.onPly = onPly;
    this.all = false;
    this.analysis = null;
    this.review = null;
    this.ply = 0;
    this.bar = element("div", { class: "win-bar", role: "img" }, element("span"));
    this.verdict = element("p", { class: "verdict", text: "Looking ..." });
    this.list = element("table", { class: "judged" });
    this.more = element("button", {
      type: "button",
      class: "plain",
      hidden: true,
      on: {
        click: () => {
          this.all = !this.all;
          this.drawMoves();
        },
      },
    });
    this.graph = element("div", { class: "graph" });
    this.slider = element("input", {
      type: "range",
      min: 0,
      value: 0,
      "aria-label": "Position of the game",
      on: { input: () => this.onPly(Number(this.slider.value)) },
    });
    this.note = element("p", { class: "note" });
    this.next = element("button", {
      type: "button",
      class: "small",
      hidden: true,
      text: "Next mistake",
      on: { click: () => this.onPly(this.nextMistake()) },
    });
    container.append(this.bar, this.verdict, this.graph, this.slider, this.note, this.next);
    container.append(this.list, this.more);
  }

  showAnalysis(analysis) {
    this.analysis = analysis;
    const estimate = analysis.value ?? analysis.estimate ?? 0;
    const white = Math.round(50 * (1 + (analysis.estimate ?? estimate)));
    this.bar.firstChild.style.width = `${white}%`;
    const words = `White ${white}%, black ${100 - white}%, says ${analysis.judge}`;
    this.bar.setAttribute("aria-label", words);
    this.bar.title = words;
    const guess = `White ${white}%, says ${analysis.judge}.`;
    this.verdict.textContent =
      analysis.moves.length === 0
        ? "The game is over."
        : analysis.value === null
          ? `${guess} The exact result needs a solved table.`
          : `Exact: ${analysis.exact}. ${guess}`;
    this.drawMoves();
  }

  drawMoves() {
    const { moves } = this.analysis;
    this.list.hidden = moves.length === 0;
    const shown = this.all ? moves : moves.slice(0, SHOWN);
    const exact = moves.some((move) => move.value !== null);
    const shares = moves.some((move) => move.share !== null);
    const guesses = !exact && moves.some((move) => move.estimate !== null);
    this.list.replaceChildren(
      element("caption", { class: "unseen", text: "Moves, best first" }),
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          element("th", { scope: "col", text: "Move" }),
          shares ? element("th", { scope: "col", text: "Network" }) : null,
          exact ? element("th", { scope: "col", text: "Exact" }) : null,
          guesses ? element("th", { scope: "col", text: "Search" }) : null,
        ),
      ),
      element("tbody", {}, ...shown.map((move) => this.row(move, exact, shares, guesses))),
    );
    this.more.hidden = moves.length <= SHOWN;
    this.more.textContent = this.all ? "Fewer" : `All ${moves.length} moves`;
  }

  row(move, exact, shares, guesses) {
    const button = element("button", {
      type: "button",
      class: "plain move",
      text: move.move,
      on: {
        mouseenter: () => this.onShow(move.move),
        mouseleave: () => this.onShow(null),
        focus: () => this.onShow(move.move),
        blur: () => this.onShow(null),
      },
    });
    const cells = [element("td", {}, button)];
    if (shares) {
      const bar = element("span", { class: "share-bar" });
      bar.style.width = `${Math.round(60 * (move.share ?? 0))}px`;
      cells.push(
        element("td", {}, bar, element("span", { text: `${Math.round(100 * (move.share ?? 0))}%` })),
      );
    }
    if (exact) {
      const mark = element("span", {
        class: `sign ${KIND[move.value]}`,
        "aria-hidden": "true",
        text: SIGN[move.value],
      });
      cells.push(element("td", { title: move.verdict ?? "" }, mark, ` ${verdictText(move)}`));
    }
    if (guesses) {
      const bar = element("span", { class: "share-bar" });
      bar.style.width = `${Math.round(30 * (1 + move.estimate))}px`;
      const sign = move.estimate < 0 ? SIGN[-1] : "+";
      cells.push(
        element("td", {}, bar, element("span", { text: sign + Math.abs(move.estimate).toFixed(2) })),
      );
    }
    return element("tr", {}, ...cells);
  }

  showReview(review) {
    this.review = review;
    this.drawGraph();
  }

  showPly(ply, last) {
    this.ply = ply;
    this.slider.max = String(last);
    this.slider.value = String(ply);
    this.slider.hidden = last === 0;
    this.drawGraph();
  }

  drawGraph() {
    if (!this.review || this.review.points.length < 2) {
      this.graph.replaceChildren();
      this.note.textContent = "";
      this.next.hidden = true;
      return;
    }
    const { points } = this.review;
    const x = (ply) => 8 + (ply / (points.length - 1)) * (WIDTH - 16);
    const y = (white) => HEIGHT / 2 - white * (HEIGHT / 2 - 12);
    const step = (point, index) =>
      index === 0
        ? `M${x(0)},${y(point.white)}`
        : this.review.exact
          ? `H${x(point.ply)}V${y(point.white)}`
          : `L${x(point.ply)},${y(point.white)}`;
    const line = points.map(step).join("");
    const mistakes = points.filter((point) => point.mistake);
    const svg = drawing(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": this.graphText(mistakes) },
      drawing("rect", { class: "upper", x: 0, y: 0, width: WIDTH, height: HEIGHT / 2 }),
      drawing("rect", { class: "lower", x: 0, y: HEIGHT / 2, width: WIDTH, height: HEIGHT / 2 }),
      drawing("path", { class: "course", d: line }),
      drawing("line", { class: "now", x1: x(this.ply), x2: x(this.ply), y1: 0, y2: HEIGHT }),
      ...mistakes.map((point) =>
        drawing(
          "g",
          { class: "mistake", on: { click: () => this.onPly(point.ply) } },
          drawing("circle", { cx: x(point.ply), cy: y(point.white), r: 5 }),
          drawing("title", { text: `Ply ${point.ply}: ${point.mistake}` }),
        ),
      ),
    );
    svg.addEventListener("click", (event) => {
      const box = svg.getBoundingClientRect();
      const share = ((event.clientX - box.left) / box.width) * WIDTH;
      const ply = Math.round(((share - 8) / (WIDTH - 16)) * (points.length - 1));
      this.onPly(Math.max(0, Math.min(points.length - 1, ply)));
    });
    this.graph.replaceChildren(svg);
    const here = points[Math.min(this.ply, points.length - 1)];
    this.note.textContent = here?.mistake
      ? `This move ${here.mistake}.`
      : this.graphText(mistakes);
    this.next.hidden = mistakes.length === 0;
  }

  /** The next mistake after the position shown; after the last, the first. */
  nextMistake() {
    const plies = this.review.points.filter((point) => point.mistake).map((point) => point.ply);
    return plies.find((ply) => ply > this.ply) ?? plies[0];
  }

  graphText(mistakes) {
    const count = `${mistakes.length} mistake${mistakes.length === 1 ? "" : "s"}`;
    return `${count} so far, by ${this.review.judge}. White's prospects above the middle, black's below.`;
  }
}
