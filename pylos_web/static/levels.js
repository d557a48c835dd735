// The new-game dialog: who plays, which colour, how strong.

import { find, store, stored } from "./dom.js";

function ratingText(level) {
  if (level.rating === null || level.rating === undefined) return "Not rated.";
  const half = Math.round((level.rating_high - level.rating_low) / 2);
  return `Rating ${Math.round(level.rating)}, give or take ${half}.`;
}

export class NewGameDialog {
  constructor(levels, onStart) {
    this.levels = levels;
    this.dialog = find("new-dialog");
    this.form = find("new-form");
    this.sliders = ["level", "level2"].map((id) => find(id));
    this.restore();
    this.form.addEventListener("input", () => this.show());
    find("new-cancel").addEventListener("click", () => this.dialog.close());
    this.form.addEventListener("submit", () => {
      store(localStorage, "choice", this.choice());
      onStart(this.message());
    });
  }

  open() {
    this.show();
    this.dialog.showModal();
  }

  restore() {
    const choice = stored(localStorage, "choice") ?? {};
    const middle = Math.min(1, this.levels.length - 1);
    for (const slider of this.sliders) slider.max = String(this.levels.length - 1);
    const index = (id) => {
      const found = this.levels.findIndex((level) => level.id === id);
      return found < 0 ? middle : found;
    };
    this.sliders[0].value = String(index(choice.level));
    this.sliders[1].value = String(index(choice.level2));
    for (const [name, value] of [
      ["mode", choice.mode],
      ["color", choice.color],
    ]) {
      for (const radio of this.form.elements[name]) {
        if (radio.value === value) radio.checked = true;
      }
    }
    if (choice.rules) find("rules").value = choice.rules;
    this.show();
  }

  choice() {
    const [level, level2] = this.sliders.map((slider) => this.levels[Number(slider.value)].id);
    return {
      level,
      level2,
      mode: this.form.elements.mode.value,
      color: this.form.elements.color.value,
      rules: find("rules").value,
    };
  }

  message() {
    const { level, level2, mode, color, rules } = this.choice();
    const message = { type: "new_game", mode, rules };
    if (mode !== "human_vs_human") message.checkpoint = level;
    if (mode === "human_vs_ai") message.human_color = color;
    if (mode === "ai_vs_ai") message.opponent = level2;
    return message;
  }

  show() {
    const { mode, rules } = this.choice();
    find("color-box").hidden = mode !== "human_vs_ai";
    find("level-box").hidden = mode === "human_vs_human";
    find("level2-box").hidden = mode !== "ai_vs_ai";
    find("level-title").textContent = mode === "ai_vs_ai" ? "White" : "Level";
    let fits = true;
    this.sliders.forEach((slider, number) => {
      const level = this.levels[Number(slider.value)];
      const id = number === 0 ? "level" : "level2";
      const plays = level.rules.includes(rules);
      const used = number === 0 ? mode !== "human_vs_human" : mode === "ai_vs_ai";
      if (used && !plays) fits = false;
      find(`${id}-label`).textContent = level.label;
      find(`${id}-text`).textContent = plays
        ? `${level.description} ${ratingText(level)}`
        : `This level plays the rules "${level.rules.join('", "')}" only.`;
      slider.setAttribute("aria-valuetext", level.label);
    });
    find("new-start").disabled = !fits;
  }
}
