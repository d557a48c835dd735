// Which board is shown, 3D or 2D, and in which colours.

import { find, store, stored } from "./dom.js";

const BUILD_3D =
  "This is the flat board. The 3D board needs Node once: " +
  "npm --prefix pylos_web/board3d ci && npm --prefix pylos_web/board3d run build";
const NO_WEBGL = "This browser shows no 3D graphics (WebGL), so here is the flat board.";
const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };

export class Views {
  constructor(page, has3d) {
    this.page = page;
    this.setTheme(stored(localStorage, "theme"));
    if (has3d) this.setView(stored(localStorage, "view") ?? "3d");
    else this.show2d(BUILD_3D);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", () => page.board3d?.restyle());
  }

  async load3d() {
    const { page } = this;
    try {
      const { Board3D } = await import("./dist/board3d.js");
      page.board3d = new Board3D(find("board3d"), (cell) => page.activate(cell));
    } catch (error) {
      console.warn("no 3D board:", error);
      this.show2d(NO_WEBGL);
      return;
    }
    page.board3d.resize();
    page.drawBoards();
  }

  show2d(note) {
    find("no3d").hidden = false;
    find("no3d").textContent = note;
    find("view").hidden = true;
    this.setView("2d");
  }

  /** The 3D board is loaded when it is first wanted. */
  setView(view) {
    this.view = view;
    const deep = view === "3d";
    find("board3d").hidden = !deep;
    find("board2d").classList.toggle("unseen", deep);
    find("view").textContent = deep ? "2D board" : "3D board";
    if (!deep) return;
    this.loading ??= this.load3d();
    this.page.board3d?.resize();
  }

  toggle() {
    if (find("view").hidden) return;
    this.setView(this.view === "3d" ? "2d" : "3d");
    store(localStorage, "view", this.view);
  }

  setTheme(theme) {
    this.theme = theme in THEMES ? theme : "auto";
    document.documentElement.dataset.theme = this.theme;
    find("theme-name").textContent = THEMES[this.theme];
    find("theme").setAttribute("aria-label", `${THEMES[this.theme]} theme`);
    this.page.board3d?.restyle();
  }

  nextTheme() {
    const order = Object.keys(THEMES);
    this.setTheme(order[(order.indexOf(this.theme) + 1) % order.length]);
    store(localStorage, "theme", this.theme);
  }
}
