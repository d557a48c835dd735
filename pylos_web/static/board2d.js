// The board in layers: thirty buttons, for the keyboard, for screen readers, and without WebGL.

import { element } from "./dom.js";
import { CELLS, LEVEL_SIZES, NAMES, cellAt } from "./geometry.js";
import { describe } from "./interaction.js";

const MARK = { W: "W", B: "B", ".": "" };

export class Board2D {
  constructor(container, onCell) {
    this.buttons = [];
    this.focused = 0;
    this.flipped = false;
    LEVEL_SIZES.forEach((size, level) => {
      const grid = element("div", {
        class: `layer layer-${size}`,
        role: "group",
        "aria-label": `Level ${level + 1}, ${size} by ${size}`,
      });
      CELLS.forEach((cell, number) => {
        if (cell.level !== level) return;
        const button = element("button", {
          type: "button",
          class: "cell",
          "data-cell": number,
          tabindex: number === 0 ? 0 : -1,
          on: {
            click: () => onCell(number),
            focus: () => this.rove(number),
            keydown: (event) => this.key(event, number),
          },
        });
        this.buttons[number] = button;
        grid.append(button);
      });
      container.append(
        element(
          "div",
          { class: "layer-box" },
          element("p", { class: "layer-name", "aria-hidden": "true", text: `Level ${level + 1}` }),
          grid,
        ),
      );
    });
    this.container = container;
  }

  focus() {
    this.buttons[this.focused].focus();
  }

  rove(number) {
    this.buttons[this.focused].tabIndex = -1;
    this.focused = number;
    this.buttons[number].tabIndex = 0;
  }

  key(event, number) {
    const { level, row, column } = CELLS[number];
    const sign = this.flipped ? -1 : 1;
    const steps = {
      ArrowLeft: () => cellAt(level, row, column - sign),
      ArrowRight: () => cellAt(level, row, column + sign),
      ArrowUp: () => cellAt(level, row - sign, column),
      ArrowDown: () => cellAt(level, row + sign, column),
      PageUp: () => nearest(level + 1, row, column),
      PageDown: () => nearest(level - 1, row, column),
      Home: () => cellAt(level, row, 0),
      End: () => cellAt(level, row, LEVEL_SIZES[level] - 1),
    };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const target = step();
    if (target !== undefined) this.buttons[target].focus();
  }

  flip(flipped) {
    this.flipped = flipped;
    this.container.classList.toggle("flipped", flipped);
  }

  draw({ cells, marks, last, hint }) {
    this.buttons.forEach((button, cell) => {
      const classes = ["cell"];
      if (cells[cell] === "W") classes.push("white");
      if (cells[cell] === "B") classes.push("black");
      if (marks.targets.has(cell)) classes.push("target");
      if (marks.movable.has(cell)) classes.push("movable");
      if (marks.removable.has(cell)) classes.push("removable");
      if (marks.selected === cell) classes.push("selected");
      if (last.includes(cell)) classes.push("last");
      if (hint.includes(cell)) classes.push("hint");
      const name = classes.join(" ");
      if (button.className !== name) button.className = name;
      const label = describe(cell, cells, marks) + (last.includes(cell) ? ", last move" : "");
      if (button.getAttribute("aria-label") !== label) button.setAttribute("aria-label", label);
      if (marks.selected === cell) button.setAttribute("aria-pressed", "true");
      else button.removeAttribute("aria-pressed");
      button.dataset.mark = MARK[cells[cell]];
      button.title = NAMES[cell];
    });
  }
}

/** The cell of another level that lies closest. */
function nearest(level, row, column) {
  const size = LEVEL_SIZES[level];
  if (size === undefined) return undefined;
  return cellAt(level, Math.min(row, size - 1), Math.min(column, size - 1));
}
