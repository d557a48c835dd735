// Wood and marble, painted pixel by pixel from noise: the page loads no pictures.

import { CanvasTexture, LinearFilter, RepeatWrapping, SRGBColorSpace } from "three";

function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let value = Math.imul(state ^ (state >>> 15), state | 1);
    value ^= value + Math.imul(value ^ (value >>> 7), value | 61);
    return ((value ^ (value >>> 14)) >>> 0) / 4294967296;
  };
}

/** Smooth noise in space, from -1 to 1. */
function makeNoise(seed) {
  const next = random(seed);
  const table = new Float32Array(4096).map(() => next() * 2 - 1);
  const at = (x, y, z) => table[(x * 73 + y * 179 + z * 283) & 4095];
  const ease = (t) => t * t * (3 - 2 * t);
  return (x, y, z) => {
    const [i, j, k] = [Math.floor(x), Math.floor(y), Math.floor(z)];
    const [u, v, w] = [ease(x - i), ease(y - j), ease(z - k)];
    let sum = 0;
    for (let corner = 0; corner < 8; corner += 1) {
      const [a, b, c] = [corner & 1, (corner >> 1) & 1, corner >> 2];
      sum += at(i + a, j + b, k + c) * (a ? u : 1 - u) * (b ? v : 1 - v) * (c ? w : 1 - w);
    }
    return sum;
  };
}

function layered(noise, x, y, z, octaves) {
  let sum = 0;
  let weight = 0.5;
  let scale = 1;
  for (let octave = 0; octave < octaves; octave += 1) {
    sum += weight * noise(x * scale, y * scale, z * scale);
    weight /= 2;
    scale *= 2.03;
  }
  return sum;
}

function mix(from, to, share) {
  const t = Math.min(1, Math.max(0, share));
  return from.map((value, index) => value + (to[index] - value) * t);
}

function paint(width, height, colorAt) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      const [red, green, blue] = colorAt(x / width, y / height);
      const index = 4 * (y * width + x);
      image.data[index] = red;
      image.data[index + 1] = green;
      image.data[index + 2] = blue;
      image.data[index + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return { canvas, context };
}

function textureOf(canvas) {
  const texture = new CanvasTexture(canvas);
  texture.colorSpace = SRGBColorSpace;
  texture.anisotropy = 4;
  return texture;
}

function paintWood(size, { pale, dark, seed, rings }) {
  const noise = makeNoise(seed);
  return paint(size, size, (u, v) => {
    const bend = layered(noise, u * 2.2, v * 0.7, 3, 3);
    const ring = Math.sin((v * rings + bend * 5.2) * Math.PI);
    const fibre = noise(u * 7, v * 240, 9) * 0.5 + noise(u * 22, v * 420, 4) * 0.35;
    const share = 0.42 + 0.34 * ring * Math.abs(ring) + 0.2 * fibre + 0.18 * bend;
    return mix(pale, dark, share);
  });
}

export const MAPLE = { pale: [208, 164, 112], dark: [150, 101, 58], seed: 11, rings: 9 };
export const WALNUT = { pale: [124, 78, 46], dark: [70, 40, 22], seed: 5, rings: 7 };

export function woodTexture(kind, size = 512) {
  const texture = textureOf(paintWood(size, kind).canvas);
  texture.wrapS = RepeatWrapping;
  texture.wrapT = RepeatWrapping;
  return texture;
}

/** The board's top: wood, a fine inlay, and letters along all four sides. */
export function boardTexture(kind, size = 1024, units = 5) {
  const { canvas, context } = paintWood(size, kind);
  const unit = size / units;
  const place = (cell) => size / 2 + (cell - 1.5) * unit;
  context.strokeStyle = "rgba(70, 34, 10, 0.55)";
  context.lineWidth = size / 300;
  const inset = 0.135 * unit;
  context.strokeRect(inset * 2.6, inset * 2.6, size - inset * 5.2, size - inset * 5.2);
  context.fillStyle = "rgba(60, 28, 8, 0.78)";
  context.font = `600 ${Math.round(unit * 0.2)}px Palatino, Georgia, serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (let turn = 0; turn < 4; turn += 1) {
    const letters = turn % 2 === 0 ? "abcd" : "1234";
    for (let index = 0; index < 4; index += 1) {
      // a letter reads from its own side of the board; the far sides count the other way round
      const cell = turn === 0 || turn === 3 ? index : 3 - index;
      context.save();
      context.translate(size / 2, size / 2);
      context.rotate((-turn * Math.PI) / 2);
      context.fillText(letters[turn === 3 ? 3 - index : index] ?? "", place(turn === 3 ? 3 - cell : cell) - size / 2, size / 2 - inset * 1.2);
      context.restore();
    }
  }
  return textureOf(canvas);
}

/** Marble over a whole sphere, without a seam: the noise is that of the point in space. */
export function marbleTexture({ ground, cloud, vein, seed, sharpness }) {
  const noise = makeNoise(seed);
  const { canvas } = paint(512, 256, (u, v) => {
    const [theta, phi] = [u * 2 * Math.PI, v * Math.PI];
    const x = Math.sin(phi) * Math.cos(theta) * 1.5;
    const y = Math.cos(phi) * 1.5;
    const z = Math.sin(phi) * Math.sin(theta) * 1.5;
    const warp = layered(noise, x * 1.3 + 7, y * 1.3, z * 1.3, 3) * 0.9;
    const thin = 1 - Math.abs(layered(noise, x + warp, y + warp, z - warp, 3)) * 3.2;
    const fine = 1 - Math.abs(layered(noise, x * 1.9 - warp, y * 1.9, z * 1.9 + warp, 2)) * 4.5;
    const base = mix(ground, cloud, 0.45 + 1.3 * layered(noise, x, y, z + 3, 3));
    const strength = Math.max(0, thin) ** sharpness * 0.8 + Math.max(0, fine) ** sharpness * 0.25;
    return mix(base, vein, strength);
  });
  return textureOf(canvas);
}

export const IVORY = {
  ground: [248, 242, 230],
  cloud: [226, 214, 194],
  vein: [150, 124, 92],
  seed: 21,
  sharpness: 7,
};
export const ONYX = {
  ground: [33, 28, 30],
  cloud: [52, 44, 44],
  vein: [186, 170, 150],
  seed: 34,
  sharpness: 11,
};

function radial(size, stops) {
  const canvas = document.createElement("canvas");
  canvas.width = size;
  canvas.height = size;
  const context = canvas.getContext("2d");
  const gradient = context.createRadialGradient(size / 2, size / 2, 0, size / 2, size / 2, size / 2);
  for (const [at, color] of stops) gradient.addColorStop(at, color);
  context.fillStyle = gradient;
  context.fillRect(0, 0, size, size);
  const texture = textureOf(canvas);
  texture.minFilter = LinearFilter;
  return texture;
}

/** A hollow in the wood. */
export function dimpleTexture() {
  return radial(128, [
    [0, "rgba(38, 17, 4, 0.62)"],
    [0.55, "rgba(46, 22, 6, 0.55)"],
    [0.8, "rgba(40, 18, 4, 0.75)"],
    [0.88, "rgba(30, 12, 2, 0.55)"],
    [0.93, "rgba(255, 226, 178, 0.5)"],
    [1, "rgba(255, 226, 178, 0)"],
  ]);
}

/** The light on a cell that may be played. */
export function glowTexture() {
  return radial(128, [
    [0, "rgba(255, 246, 222, 1)"],
    [0.3, "rgba(255, 222, 150, 0.9)"],
    [0.55, "rgba(255, 190, 90, 0.4)"],
    [1, "rgba(255, 170, 60, 0)"],
  ]);
}

/** The mark on the sphere that was played last. */
export function dotTexture() {
  return radial(64, [
    [0, "rgba(255, 196, 84, 1)"],
    [0.62, "rgba(255, 186, 70, 1)"],
    [0.72, "rgba(92, 46, 8, 0.9)"],
    [0.9, "rgba(92, 46, 8, 0.55)"],
    [1, "rgba(92, 46, 8, 0)"],
  ]);
}

/** The soft dark under the board. */
export function groundTexture() {
  return radial(256, [
    [0, "rgba(30, 16, 6, 0.75)"],
    [0.45, "rgba(30, 16, 6, 0.55)"],
    [0.75, "rgba(30, 16, 6, 0.18)"],
    [1, "rgba(30, 16, 6, 0)"],
  ]);
}
