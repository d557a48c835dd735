// The list of moves: two turns a line, each a button that looks at the position after it.

import { element } from "./dom.js";
import { turnsOf } from "./history.js";

export function drawMoves(list, state, ply, mistakes, onPly) {
  const turns = turnsOf(state.start, state.plies);
  const rows = [];
  const first = state.start.split(" ")[1] === "b" ? 1 : 0;
  turns.forEach((turn, index) => {
    const place = index + first;
    if (place % 2 === 0 || rows.length === 0) {
      rows.push(element("li", { value: Math.floor(place / 2) + 1 }));
      if (place % 2 === 1) rows.at(-1).append(element("span", { class: "skipped", text: "..." }));
    }
    const bad = turn.plies.map((number) => mistakes.get(number)).find(Boolean);
    const now = turn.plies.includes(ply);
    const button = element("button", {
      type: "button",
      class: "plain move" + (now ? " now" : "") + (bad ? " bad" : ""),
      "aria-current": now ? "step" : null,
      title: bad ?? "",
      on: { click: () => onPly(turn.end) },
    });
    button.append(turn.text);
    if (bad) button.append(element("span", { class: "mark", text: "?" }));
    rows.at(-1).append(button);
  });
  if (rows.length === 0) rows.push(element("li", { class: "none", text: "No moves yet." }));
  list.replaceChildren(...rows);
  // scrolls the list alone: scrollIntoView would move the page too
  const shown = list.querySelector(".now");
  if (shown) {
    const top = shown.offsetTop - list.offsetTop;
    if (top < list.scrollTop || top > list.scrollTop + list.clientHeight - 32) {
      list.scrollTop = top - list.clientHeight / 2;
    }
  } else {
    list.scrollTop = list.scrollHeight;
  }
}
