// The page: one state from the server, drawn by whichever board is shown.

import { AnalysisPanel } from "./analysis.js";
import { Board2D } from "./board2d.js";
import { Connection } from "./connection.js";
import { bindControls } from "./controls.js";
import { download, element, find, store, stored } from "./dom.js";
import { cellsOf } from "./geometry.js";
import { readLink, recordText, reservesOf, snapshots } from "./history.js";
import { Interaction, whyIdle } from "./interaction.js";
import { NewGameDialog } from "./levels.js";
import { drawMoves } from "./movelist.js";
import { drawSeat } from "./seats.js";
import { announcement, statusText } from "./speech.js";
import { Views } from "./views.js";

const STATUS = {
  open: "",
  lost: "Connection lost. Trying to come back ...",
  full: "The server is full. Trying again ...",
  taken: "This game goes on in another window.",
  idle: "Disconnected after a long pause. Reload to go on.",
  refused: "The server closed the connection. Reload to go on.",
};
const WIDE = matchMedia("(min-width: 62.01rem)"); // the panels stand beside the board
const NO_MARKS = { targets: new Set(), movable: new Set(), removable: new Set(), selected: null };

class Page {
  constructor(levels, has3d) {
    this.state = null;
    this.tokens = stored(sessionStorage, "tokens");
    this.snaps = [];
    this.viewPly = null; // null looks at the present
    this.hintCells = [];
    this.pointed = [];
    this.mistakes = new Map();
    this.flipped = false;
    this.board3d = null;
    this.interaction = new Interaction();
    this.board2d = new Board2D(find("board2d"), (cell) => this.activate(cell));
    this.panel = new AnalysisPanel(find("analysis"), {
      onShow: (move) => this.point(move),
      onPly: (ply) => this.look(ply),
    });
    this.dialog = new NewGameDialog(levels, (message) => this.newGame(message));
    this.connection = new Connection({
      onReady: (_, restarted) => this.ready(restarted),
      onMessage: (message) => this.receive(message),
      onStatus: (status) => this.showConnection(status),
    });
    bindControls(this);
    this.views = new Views(this, has3d);
    this.connection.open();
  }

  // The conversation

  ready(restarted) {
    const link = readLink(location.hash);
    if (link) {
      if (link.type === "new_game") history.replaceState(null, "", location.pathname);
      this.restoring = null;
      this.connection.send(link);
    } else if (this.tokens?.token) {
      this.restoring = restarted ? "The server has restarted" : "The server no longer had this game";
      this.connection.send({ type: "resume", token: this.tokens.token });
    } else {
      this.connection.send(this.dialog.message());
    }
  }

  /** The server knows nothing of our game any more: it goes on from the page's own copy. */
  restore() {
    const kept = stored(sessionStorage, "game");
    store(sessionStorage, "tokens", null);
    this.tokens = null;
    if (!kept) {
      this.connection.send(this.dialog.message());
      return;
    }
    this.notice = `${this.restoring}: the game goes on from this page's copy.`;
    this.connection.send({ type: "new_game", ...kept });
  }

  receive(message) {
    const handlers = {
      joined: () => {
        this.tokens = message;
        if (message.token) store(sessionStorage, "tokens", message);
      },
      state: () => this.update(message),
      error: () => this.complain(message),
      hint: () => this.showHint(message),
      analysis: () => {
        if (message.ply === this.ply) this.panel.showAnalysis(message);
      },
      review: () => this.showReview(message),
      record: () => download("pylos-game.txt", message.text),
    };
    handlers[message.type]?.();
  }

  complain(error) {
    if (error.code === "unknown_game") {
      if (error.re === "resume" && this.tokens) {
        this.restore();
      } else {
        history.replaceState(null, "", location.pathname);
        this.notice = "That game is not on the server any more: here is a new one.";
        this.connection.send(this.dialog.message());
      }
      return;
    }
    if (error.code === "stale") return; // the state that made it stale is already on its way
    this.say(error.message);
    if (this.state || error.re !== "new_game") return;
    this.notice = error.message; // a link or a kept game that cannot be: a fresh one, with the reason
    this.connection.send({ type: "new_game" });
  }

  newGame(message) {
    this.viewPly = null;
    if (this.tokens && !this.tokens.token) this.leaveAsSpectator();
    this.connection.send(message);
  }

  leaveAsSpectator() {
    history.replaceState(null, "", location.pathname);
  }

  update(state) {
    const before = this.state;
    const known = this.snaps.length;
    this.state = state;
    this.snaps = snapshots(state.start, state.plies);
    const changed = !before || before.seq !== state.seq;
    const sameGame =
      before && before.start === state.start && before.plies.every((ply, i) => state.plies[i] === ply);
    if (changed) {
      this.hintCells = [];
      this.pointed = [];
      if (!sameGame) {
        this.viewPly = null;
        this.mistakes = new Map();
        this.panel.showReview(null);
        if (!before) this.flipped = state.you === "black";
        else if (before.you !== state.you) this.flipped = state.you === "black";
      }
      const steps = sameGame ? this.snaps.slice(known).map((snap) => snap.step) : [];
      find("announcer").append(element("p", { text: announcement(steps, state) }));
      while (find("announcer").children.length > 5) find("announcer").firstChild.remove();
      if (this.notice || steps.length > 0 || !sameGame) this.say(this.notice ?? "");
      this.notice = null;
    }
    this.keep(state);
    this.draw();
    if (changed) this.ask();
  }

  /** What is needed to rebuild the game on a server that has forgotten it. */
  keep(state) {
    if (state.you === "none" && state.mode !== "ai_vs_ai") return;
    if (!this.tokens?.token) return;
    const kept = { mode: state.mode, record: recordText(state), pace_ms: state.pace_ms };
    const { white, black } = state.players;
    if (state.mode === "human_vs_ai") {
      kept.human_color = white.kind === "human" ? "white" : "black";
      kept.checkpoint = (white.kind === "human" ? black : white).level;
    } else if (state.mode === "ai_vs_ai") {
      kept.checkpoint = white.level;
      kept.opponent = black.level;
    }
    store(sessionStorage, "game", kept);
  }

  /** The same players once more. */
  again() {
    const { mode, pace_ms, human_color, checkpoint, opponent } = stored(sessionStorage, "game") ?? {};
    const wanted = { type: "new_game", mode, pace_ms, human_color, checkpoint, opponent };
    this.newGame(mode ? { ...wanted, rules: this.state.rules } : this.dialog.message());
    this.toBoard();
  }

  closeOver() {
    this.closedAt = this.state.seq;
    this.draw();
    this.toBoard();
  }

  /** The button that was pressed is gone: the keyboard goes on at the board, where that is shown. */
  toBoard() {
    if (this.views.view === "2d") this.board2d.focus();
  }

  /** From the start, with the truth beside it. */
  review() {
    const box = find("analysis-box");
    box.open = true; // its toggle asks for what it shows
    this.look(0);
    if (WIDE.matches) box.scrollIntoView({ block: "nearest" }); // else the board would leave the screen
    find("forth").focus({ preventScroll: true });
  }

  /** What the open panels need to know of the position shown. */
  ask() {
    if (!this.state || !find("analysis-box").open) return;
    const busy = this.state.mode === "ai_vs_ai" && !this.state.paused && this.state.pace_ms < 400;
    if (busy && this.state.phase !== "over") return;
    this.connection.send({ type: "analyse", ply: this.ply });
    this.connection.send({ type: "review" });
  }

  showReview(review) {
    this.mistakes = new Map(
      review.points.filter((point) => point.mistake).map((point) => [point.ply, point.mistake]),
    );
    this.panel.showReview(review);
    this.drawList();
  }

  showHint(hint) {
    this.hintCells = cellsOf(hint.moves[0]);
    this.say(`Hint: ${hint.text}`);
    this.drawBoards();
  }

  // What people do

  activate(cell) {
    if (this.viewPly !== null) {
      this.say("You are looking back: return to the present to play.");
      return;
    }
    const message = this.interaction.activate(cell);
    if (message) this.connection.send(message);
    else if (message === undefined) this.say(whyIdle(cell, this.cells, this.state));
    else this.say("");
    this.drawBoards();
  }

  act(type) {
    if (!this.state) return;
    this.viewPly = null;
    this.connection.send(type === "hint" ? { type } : { type, seq: this.state.seq });
  }

  look(ply) {
    const last = this.snaps.length - 1;
    const wanted = Math.max(0, Math.min(last, ply));
    this.viewPly = wanted === last ? null : wanted;
    this.hintCells = [];
    this.draw();
    if (find("analysis-box").open) this.connection.send({ type: "analyse", ply: this.ply });
  }

  point(move) {
    this.pointed = move ? cellsOf(move) : [];
    this.drawBoards();
  }

  flip() {
    this.flipped = !this.flipped;
    this.draw();
  }

  setPace(paused) {
    const pace = Number(find("pace").value);
    this.connection.send({ type: "pace", pace_ms: pace, paused });
  }

  async share(make, what) {
    if (!this.state) return;
    const link = make();
    const box = find("link");
    box.parentElement.hidden = false;
    box.value = link;
    try {
      await navigator.clipboard.writeText(link);
      this.say(`${what} copied.`);
    } catch {
      box.select();
      this.say(`${what}: copy it from the box.`);
    }
  }

  async loadRecord(file) {
    if (!file) return;
    const text = await file.text();
    const { mode, checkpoint, human_color, opponent } = this.dialog.message();
    this.newGame({ type: "new_game", mode, checkpoint, human_color, opponent, record: text });
  }

  // Drawing

  get ply() {
    return this.viewPly ?? this.snaps.length - 1;
  }

  get cells() {
    return this.snaps[this.ply]?.cells ?? [];
  }

  draw() {
    if (!this.state) return;
    const state = this.state;
    this.interaction.update(state, this.viewPly === null);
    find("status").textContent = statusText(state);
    this.drawControls(state);
    this.drawSeats(state);
    this.drawBoards();
    this.drawList();
    this.panel.showPly(this.ply, this.snaps.length - 1);
    const note = find("review-note");
    note.hidden = this.viewPly === null;
    note.textContent = `Looking back: ply ${this.ply} of ${this.snaps.length - 1}`;
    this.drawOver(state);
  }

  drawOver(state) {
    find("over").hidden = state.phase !== "over" || this.viewPly !== null || this.closedAt === state.seq;
    if (state.phase !== "over") return;
    const { winner } = state.result;
    const name = { white: "White", black: "Black" }[winner];
    find("over-title").textContent =
      winner === null ? "Nobody wins" : state.you === winner ? "You win!" : `${name} wins`;
    find("over-again").hidden = !this.tokens?.token;
  }

  drawControls(state) {
    const mine = state.you !== "none";
    const over = state.phase === "over";
    find("done").hidden = !state.legal.stop;
    find("undo").disabled = !state.may_undo;
    find("hint").disabled = !mine || over || state.players[state.turn].kind === "ai";
    find("resign").disabled = !mine || over;
    const auto = state.mode === "ai_vs_ai";
    find("pause").hidden = !auto || over || !this.tokens?.token;
    find("pause").textContent = state.paused ? "Go on" : "Pause";
    find("pace-box").hidden = !auto || !this.tokens?.token;
    if (document.activeElement !== find("pace")) find("pace").value = String(state.pace_ms);
    find("pace-value").textContent = `${(state.pace_ms / 1000).toFixed(1)} s`;
    for (const id of ["undo", "hint", "resign"]) find(id).hidden = !mine;
    find("typed").hidden = !mine;
    find("copy-watch").textContent =
      state.watchers > 0 ? `Copy spectator link (${state.watchers} watching)` : "Copy spectator link";
  }

  drawSeats(state) {
    const reserves = reservesOf(this.cells);
    const [top, bottom] = this.flipped ? ["white", "black"] : ["black", "white"];
    for (const [id, color] of [
      ["seat-top", top],
      ["seat-bottom", bottom],
    ]) {
      drawSeat(find(id), color, state, reserves[color], state.turn === color && state.phase !== "over");
    }
  }

  drawBoards() {
    const snap = this.snaps[this.ply];
    if (!snap) return;
    const picture = {
      cells: snap.cells,
      reserves: reservesOf(snap.cells),
      marks: this.viewPly === null ? this.interaction.marks() : NO_MARKS,
      last: snap.step && snap.step.target !== undefined ? [snap.step.target] : [],
      hint: this.pointed.length > 0 ? this.pointed : this.hintCells,
      turn: this.state.turn === "white" ? "W" : "B",
    };
    this.board2d.flip(this.flipped);
    this.board2d.draw(picture);
    this.board3d?.flip(this.flipped);
    this.board3d?.draw(picture);
  }

  drawList() {
    drawMoves(find("moves"), this.state, this.ply, this.mistakes, (ply) => this.look(ply));
  }

  say(text) {
    find("message").textContent = text;
  }

  showConnection(status) {
    const node = find("connection");
    node.textContent = STATUS[status];
    node.dataset.status = status;
    document.body.classList.toggle("offline", status !== "open");
    if (status === "open" && this.wasLost) this.say("Connected again.");
    this.wasLost = status === "lost";
  }
}

const answer = await fetch("/checkpoints");
const { checkpoints, board3d } = await answer.json();
globalThis.pylos = new Page(checkpoints, board3d);
