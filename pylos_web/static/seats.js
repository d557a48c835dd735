// The two strips beside the board: who plays, whose turn it is, and the spheres in hand.

import { element } from "./dom.js";
import { SPHERES } from "./geometry.js";

const NAME = { white: "White", black: "Black" };

export function drawSeat(node, color, state, reserve, active) {
  const player = state.players[color];
  const thinking = active && state.thinking && player.kind === "ai";
  let [name, under] = [player.name, thinking ? `${NAME[color]}, thinking` : NAME[color]];
  if (state.you === color) name = "You";
  else if (state.you === "both") [name, under] = [NAME[color], active ? "to move" : ""];
  const dots = Array.from({ length: SPHERES }, (_, number) =>
    element("i", { class: `ball ${color}${number < reserve ? "" : " spent"}` }),
  );
  node.className = `seat ${color}${active ? " active" : ""}`;
  node.replaceChildren(
    element("span", { class: `disc ${color}`, "aria-hidden": "true" }),
    element(
      "span",
      { class: "who" },
      element("strong", { text: name }),
      element("small", { text: under }),
    ),
    element(
      "span",
      { class: "reserve", role: "img", "aria-label": `${NAME[color]} has ${reserve} in reserve` },
      ...dots,
    ),
    element("b", { class: "count", "aria-hidden": "true", text: String(reserve) }),
  );
}
