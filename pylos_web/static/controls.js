// What the buttons, the fields and the keys of the page do.

import { find } from "./dom.js";
import { gameLink, positionAt, positionLink, readLink, watchLink } from "./history.js";

export function bindControls(page) {
  const click = (id, handler) => find(id).addEventListener("click", handler);
  click("new-open", () => page.dialog.open());
  click("help-open", () => find("help-dialog").showModal());
  click("view", () => page.views.toggle());
  click("theme", () => page.views.nextTheme());
  click("undo", () => page.act("undo"));
  click("hint", () => page.act("hint"));
  click("resign", () => page.act("resign"));
  click("done", () => page.act("skip_removal"));
  click("flip", () => page.flip());
  click("over-again", () => page.again());
  click("over-review", () => page.review());
  click("over-close", () => page.closeOver());
  click("pause", () => page.setPace(!page.state.paused));
  find("pace").addEventListener("change", () => page.setPace(page.state.paused));
  click("first", () => page.look(0));
  click("back", () => page.look(page.ply - 1));
  click("forth", () => page.look(page.ply + 1));
  click("live", () => page.look(page.snaps.length - 1));
  click("copy-position", () => {
    const board = positionAt(page.state, page.snaps, page.ply);
    page.share(() => positionLink(page.state, board), "Link to the position");
  });
  click("copy-game", () => page.share(() => gameLink(page.state), "Link to the game"));
  click("copy-watch", () => page.share(() => watchLink(page.tokens.watch), "Spectator link"));
  click("save", () => page.connection.send({ type: "record" }));
  click("load", () => find("load-file").click());
  find("load-file").addEventListener("change", (event) => {
    page.loadRecord(event.target.files[0]);
    event.target.value = "";
  });
  find("typed").addEventListener("submit", (event) => {
    event.preventDefault();
    const input = find("typed-move");
    const text = input.value.trim();
    if (!text || !page.state) return;
    page.viewPly = null;
    page.connection.send({ type: "move", kind: "text", text, seq: page.state.seq });
    input.value = "";
  });
  find("analysis-box").addEventListener("toggle", () => page.ask());
  addEventListener("keydown", (event) => onKey(page, event));
  addEventListener("hashchange", () => {
    if (readLink(location.hash)) page.ready(false);
  });
}

function onKey(page, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, dialog")) return;
  const keys = {
    Escape: () => page.interaction.cancel() && page.drawBoards(),
    u: () => !find("undo").disabled && page.act("undo"),
    h: () => !find("hint").disabled && page.act("hint"),
    d: () => !find("done").hidden && page.act("skip_removal"),
    f: () => page.flip(),
    v: () => page.views.toggle(),
    "[": () => page.look(page.ply - 1),
    "]": () => page.look(page.ply + 1),
    "/": () => {
      event.preventDefault();
      find("typed-move").focus();
    },
  };
  keys[event.key]?.();
}
