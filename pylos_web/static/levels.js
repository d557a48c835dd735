// The new-game dialog: who plays, which colour, how strong.

import { find, store, stored } from "./dom.js";

const FIRST_CHOICE = 1; // the second weakest: the weakest plays at random where nothing was trained

function ratingText(level) {
  if (level.rating === null || level.rating === undefined) return "";
  const half = Math.round((level.rating_high - level.rating_low) / 2);
  return `${Math.round(level.rating)} \u00b1 ${half}`;
}

function spoken(level) {
  const rating = ratingText(level).replace("\u00b1", "plus or minus");
  return rating ? `${level.label}, rating ${rating}` : level.label;
}

export class NewGameDialog {
  constructor(levels, onStart) {
    this.all = levels;
    this.dialog = find("new-dialog");
    this.form = find("new-form");
    this.ids = ["level", "level2"];
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
    for (const [name, value] of [
      ["mode", choice.mode],
      ["color", choice.color],
    ]) {
      for (const radio of this.form.elements[name]) {
        if (radio.value === value) radio.checked = true;
      }
    }
    if (choice.rules) find("rules").value = choice.rules;
    if (!find("rules").value) find("rules").selectedIndex = 0;
    this.fit();
    for (const id of this.ids) {
      const found = this.levels.findIndex((level) => level.id === choice[id]);
      find(id).value = String(found < 0 ? Math.min(FIRST_CHOICE, this.levels.length - 1) : found);
    }
    this.show();
  }

  /** The sliders hold the levels that play the chosen rules; they stay about as high as they are. */
  fit() {
    const rules = find("rules").value;
    if (this.rules === rules) return;
    this.rules = rules;
    this.levels = this.all.filter((level) => level.rules.includes(rules));
    const last = this.levels.length - 1;
    for (const id of this.ids) {
      const slider = find(id);
      const height = Number(slider.max) > 0 ? Number(slider.value) / Number(slider.max) : 0;
      slider.max = String(last);
      slider.value = String(Math.round(height * last));
      slider.disabled = last === 0;
      find(`${id}-low`).textContent = this.levels[0].label;
      find(`${id}-high`).textContent = last > 0 ? this.levels[last].label : "";
    }
  }

  choice() {
    const [level, level2] = this.ids.map((id) => this.levels[Number(find(id).value)].id);
    return {
      level,
      level2,
      mode: this.form.elements.mode.value,
      color: this.form.elements.color.value,
      rules: this.rules,
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
    this.fit();
    const { mode } = this.choice();
    find("color-box").hidden = mode !== "human_vs_ai";
    find("level-box").hidden = mode === "human_vs_human";
    find("level2-box").hidden = mode !== "ai_vs_ai";
    find("level-title").textContent = mode === "ai_vs_ai" ? "White" : "Level";
    for (const id of this.ids) {
      const level = this.levels[Number(find(id).value)];
      find(`${id}-label`).textContent = level.label;
      find(`${id}-rating`).textContent = ratingText(level);
      find(`${id}-rating`).title = "Rating, random play being 0, and its interval";
      find(`${id}-text`).textContent = level.description;
      find(id).setAttribute("aria-valuetext", spoken(level));
    }
  }
}
