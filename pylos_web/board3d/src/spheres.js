// The thirty spheres: where each is, and how it gets to where it should be.

import {
  BackSide,
  Mesh,
  MeshBasicMaterial,
  MeshPhongMaterial,
  MeshStandardMaterial,
  SphereGeometry,
} from "three";
import { RADIUS, TRAY, cellPoint, reservePoint } from "./layout.js";
import { arc, drop, fade, still } from "./motion.js";
import { IVORY, ONYX, marbleTexture } from "./textures.js";

const PER_SIDE = 15;
const AMBER = 0xffb84d;
const GREEN = 0x5fd09c;

function marble(kind, roughness, gentle) {
  if (gentle) {
    return new MeshPhongMaterial({ map: marbleTexture(kind), shininess: 70, specular: 0x4a463e });
  }
  return new MeshStandardMaterial({
    map: marbleTexture(kind),
    roughness,
    envMapIntensity: 0.9,
    color: 0xf2f2f2,
  });
}

export class Spheres {
  constructor(scene, cells, gentle) {
    this.points = cells.map(cellPoint);
    this.geometry = gentle
      ? new SphereGeometry(RADIUS, 28, 18)
      : new SphereGeometry(RADIUS, 48, 32);
    this.materials = { W: marble(IVORY, 0.24, gentle), B: marble(ONYX, 0.2, gentle) };
    this.sideways = false;
    this.motions = new Map();
    this.all = { W: [], B: [] };
    for (const color of ["W", "B"]) {
      for (let number = 0; number < PER_SIDE; number += 1) {
        const mesh = new Mesh(this.geometry, this.materials[color]);
        mesh.castShadow = true;
        mesh.receiveShadow = true;
        // every sphere shows another side of the same marble
        mesh.rotation.set(number * 1.7, number * 2.9 + (color === "B" ? 1 : 0), number * 0.8);
        const sphere = { mesh, color, cell: null, number };
        mesh.userData.sphere = sphere;
        this.all[color].push(sphere);
        scene.add(mesh);
        this.put(sphere, this.home(sphere));
      }
    }
    this.outline = new SphereGeometry(RADIUS * 1.09, 32, 20);
    this.pulses = [];
    this.scene = scene;
  }

  home({ color, number }) {
    const { x, y, z } = reservePoint(color, number);
    // trays lie before and behind the board, or to both sides of it in a wide window
    return this.sideways
      ? { x: z, y, z: -x, scale: TRAY.scale }
      : { x, y, z, scale: TRAY.scale };
  }

  turnTrays(sideways) {
    if (this.sideways === sideways) return;
    this.sideways = sideways;
    for (const sphere of [...this.all.W, ...this.all.B]) {
      if (sphere.cell === null && !this.motions.has(sphere)) this.put(sphere, this.home(sphere));
    }
  }

  put({ mesh }, { x, y, z, scale = 1, opacity = 1 }) {
    mesh.position.set(x, y, z);
    mesh.scale.setScalar(scale);
    if (opacity < 1 && !mesh.userData.faded) {
      mesh.userData.faded = mesh.material;
      mesh.material = mesh.material.clone();
      mesh.material.transparent = true;
    } else if (opacity === 1 && mesh.userData.faded) {
      mesh.material.dispose();
      mesh.material = mesh.userData.faded;
      mesh.userData.faded = null;
    }
    if (mesh.userData.faded) mesh.material.opacity = opacity;
  }

  at(cell) {
    return [...this.all.W, ...this.all.B].find((sphere) => sphere.cell === cell) ?? null;
  }

  /** Bring the board to these cells; what changed in one action is shown as a motion. */
  arrange(cells, now) {
    this.finish();
    const gone = [];
    const come = [];
    cells.forEach((color, cell) => {
      const sphere = this.at(cell);
      if (sphere && sphere.color !== color) gone.push(sphere);
      if (color !== "." && sphere?.color !== color) come.push({ cell, color });
    });
    if (gone.length + come.length === 0) return false;
    const animated = !still.matches && gone.length + come.length <= 3 && now !== null;
    for (const { cell, color } of come) {
      const index = gone.findIndex((sphere) => sphere.color === color);
      if (index >= 0) {
        const [sphere] = gone.splice(index, 1);
        this.move(sphere, cell, animated ? arc(this.points[sphere.cell], this.points[cell]) : null, now);
      } else {
        const sphere = this.nextInReserve(color);
        if (!sphere) continue;
        const from = this.home(sphere);
        this.move(sphere, cell, animated ? drop(from, this.points[cell], from.scale) : null, now);
      }
    }
    for (const sphere of gone) {
      const from = this.points[sphere.cell];
      this.move(sphere, null, animated ? fade(from) : null, now);
    }
    this.tidyReserves();
    return true;
  }

  /** The sphere that leaves the tray next: the last of the inner row first. */
  nextInReserve(color) {
    return this.all[color].findLast((sphere) => sphere.cell === null && !this.motions.has(sphere));
  }

  /** Spheres in hand always fill the places with the lowest numbers. */
  tidyReserves() {
    for (const color of ["W", "B"]) {
      const inHand = this.all[color].filter((sphere) => sphere.cell === null);
      const outside = this.all[color].filter((sphere) => sphere.cell !== null);
      [...inHand, ...outside].forEach((sphere, number) => {
        sphere.number = number;
      });
      this.all[color].sort((a, b) => a.number - b.number);
      for (const sphere of inHand) {
        if (!this.motions.has(sphere)) this.put(sphere, this.home(sphere));
      }
    }
  }

  move(sphere, cell, motion, now) {
    sphere.cell = cell;
    if (motion) this.motions.set(sphere, { ...motion, begin: now });
    else this.put(sphere, cell === null ? this.home(sphere) : this.points[cell]);
  }

  /** Everything to the end of its motion. */
  finish() {
    for (const sphere of this.motions.keys()) this.rest(sphere);
    this.motions.clear();
  }

  rest(sphere) {
    this.put(sphere, sphere.cell === null ? this.home(sphere) : this.points[sphere.cell]);
  }

  /** One frame of all motions; whether any goes on. */
  step(now) {
    for (const [sphere, motion] of this.motions) {
      const t = (now - motion.begin) / motion.duration;
      if (t >= 1) {
        this.motions.delete(sphere);
        this.rest(sphere);
      } else {
        this.put(sphere, motion.at(Math.max(0, t)));
      }
    }
    return this.motions.size > 0;
  }

  /** Outlines around the selected sphere or the removable ones, and around hinted ones. */
  outlineCells(cells, hinted, pulsing) {
    for (const mesh of this.pulses) {
      this.scene.remove(mesh);
      mesh.material.dispose();
    }
    const plain = cells.filter((cell) => !hinted.includes(cell));
    this.pulses = [...plain.map((cell) => [cell, AMBER]), ...hinted.map((cell) => [cell, GREEN])].map(
      ([cell, color]) => {
        const mesh = new Mesh(this.outline, new MeshBasicMaterial({ color, side: BackSide }));
        mesh.position.copy(this.points[cell]);
        this.scene.add(mesh);
        return mesh;
      },
    );
    this.pulsing = pulsing && cells.length > 0;
  }

  pulse(now) {
    const wave = this.pulsing && !still.matches ? (Math.sin(now / 260) + 1) / 2 : 0.4;
    for (const mesh of this.pulses) mesh.scale.setScalar(0.985 + wave * 0.05);
  }
}
