// The 30 cells and how text names them; the numbering is that of docs/rules.md.

export const LEVEL_SIZES = [4, 3, 2, 1];
export const SPHERES = 15;

export const CELLS = [];
for (let level = 0; level < 4; level += 1) {
  for (let row = 0; row < 4 - level; row += 1) {
    for (let column = 0; column < 4 - level; column += 1) CELLS.push({ level, row, column });
  }
}

export const NAMES = CELLS.map(
  ({ level, row, column }) => `${level + 1}${"abcd"[column]}${row + 1}`,
);
const NUMBERS = new Map(NAMES.map((name, cell) => [name, cell]));

export function cellOf(name) {
  return NUMBERS.get(name);
}

export function cellAt(level, row, column) {
  const size = LEVEL_SIZES[level];
  if (size === undefined || row < 0 || column < 0 || row >= size || column >= size) return undefined;
  return NUMBERS.get(`${level + 1}${"abcd"[column]}${row + 1}`);
}

/** The four cells that a cell rests on; none on the ground. */
export const SUPPORTS = CELLS.map(({ level, row, column }) =>
  level === 0
    ? []
    : [
        cellAt(level - 1, row, column),
        cellAt(level - 1, row, column + 1),
        cellAt(level - 1, row + 1, column),
        cellAt(level - 1, row + 1, column + 1),
      ],
);

/** The cells that rest on a cell. */
export const RESTING = CELLS.map((_, cell) =>
  SUPPORTS.flatMap((below, above) => (below.includes(cell) ? [above] : [])),
);

/** The cells that a step of our notation names. */
export function cellsOf(move) {
  return move === "stop" ? [] : move.replace(/^x/, "").split("-").map(cellOf);
}
