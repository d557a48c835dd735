// Where things are. One unit is a sphere's diameter; y points up, rows run along z.

export const RADIUS = 0.5;
export const SINK = 0.34; // how far below a sphere's centre the board's surface lies
export const LEVEL_HEIGHT = Math.SQRT1_2;
export const BOARD = { size: 5.0, height: 0.42 };
export const PLINTH = { width: 5.7, depth: 8.6, height: 0.34 };
export const TRAY = { scale: 0.56, pitch: 0.585, rows: [3.06, 3.7], counts: [8, 7] };

/** The centre of a sphere on a cell. */
export function cellPoint({ level, row, column }) {
  const offset = level / 2 - 1.5;
  return { x: column + offset, y: level * LEVEL_HEIGHT, z: row + offset };
}

/** The centre of a sphere in reserve: the outer row empties last. */
export function reservePoint(color, number) {
  const outer = number < TRAY.counts[0];
  const index = outer ? number : number - TRAY.counts[0];
  const count = outer ? TRAY.counts[0] : TRAY.counts[1];
  const sign = color === "W" ? 1 : -1;
  return {
    x: (index - (count - 1) / 2) * TRAY.pitch,
    y: -SINK - BOARD.height + TRAY.scale * RADIUS - 0.06,
    z: sign * TRAY.rows[outer ? 1 : 0],
  };
}
