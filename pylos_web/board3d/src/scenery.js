// Everything that never moves: board, plinth, trays, lamps.

import {
  BoxGeometry,
  CircleGeometry,
  DirectionalLight,
  Group,
  HemisphereLight,
  InstancedMesh,
  Matrix4,
  Mesh,
  MeshBasicMaterial,
  MeshLambertMaterial,
  MeshStandardMaterial,
  PlaneGeometry,
  Scene,
} from "three";
import { RoundedBoxGeometry } from "three/examples/jsm/geometries/RoundedBoxGeometry.js";
import { BOARD, PLINTH, SINK, TRAY } from "./layout.js";
import {
  MAPLE,
  WALNUT,
  boardTexture,
  dimpleTexture,
  groundTexture,
  woodTexture,
} from "./textures.js";

const SURFACE = -SINK;
const BASE = SURFACE - BOARD.height;

function flat(mesh, height) {
  mesh.rotation.x = -Math.PI / 2;
  mesh.position.y = height;
  return mesh;
}

function wooden(map, gentle) {
  return gentle ? new MeshLambertMaterial({ map }) : new MeshStandardMaterial({ map, roughness: 0.5 });
}

function board(gentle) {
  const side = wooden(woodTexture(MAPLE), gentle);
  const slab = new Mesh(new RoundedBoxGeometry(BOARD.size, BOARD.height, BOARD.size, 4, 0.12), side);
  slab.position.y = SURFACE - BOARD.height / 2;
  slab.castShadow = true;
  slab.receiveShadow = true;
  const face = wooden(boardTexture(MAPLE), gentle);
  const top = flat(new Mesh(new PlaneGeometry(BOARD.size - 0.2, BOARD.size - 0.2), face), SURFACE + 0.002);
  top.receiveShadow = true;
  const dimples = new InstancedMesh(
    new CircleGeometry(0.43, 32).rotateX(-Math.PI / 2),
    new MeshBasicMaterial({ map: dimpleTexture(), transparent: true, depthWrite: false }),
    16,
  );
  for (let cell = 0; cell < 16; cell += 1) {
    const [x, z] = [(cell % 4) - 1.5, Math.floor(cell / 4) - 1.5];
    dimples.setMatrixAt(cell, new Matrix4().makeTranslation(x, SURFACE + 0.006, z));
  }
  const group = new Group();
  group.add(slab, top, dimples);
  return group;
}

/** The dark foot with a tray at each end; it turns with the shape of the window. */
function plinth(gentle) {
  const wood = wooden(woodTexture(WALNUT), gentle);
  const group = new Group();
  const foot = new Mesh(new RoundedBoxGeometry(PLINTH.width, PLINTH.height, PLINTH.depth, 4, 0.14), wood);
  foot.position.y = BASE - PLINTH.height / 2;
  foot.receiveShadow = true;
  foot.castShadow = true;
  group.add(foot);
  const groove = new MeshBasicMaterial({ color: 0x1c0f07, transparent: true, opacity: 0.5 });
  const length = TRAY.pitch * TRAY.counts[0] + 0.1;
  for (const sign of [1, -1]) {
    for (const row of TRAY.rows) {
      const strip = flat(new Mesh(new PlaneGeometry(length, 0.34), groove), BASE + 0.004);
      strip.position.z = sign * row;
      group.add(strip);
    }
    const rail = new Mesh(new BoxGeometry(length + 0.2, 0.07, 0.06), wood);
    rail.position.set(0, BASE + 0.03, sign * (TRAY.rows[1] + 0.42));
    rail.castShadow = true;
    group.add(rail);
  }
  return group;
}

function ground() {
  const material = new MeshBasicMaterial({
    map: groundTexture(),
    transparent: true,
    depthWrite: false,
    opacity: 0.5,
  });
  return flat(new Mesh(new PlaneGeometry(13, 13), material), BASE - PLINTH.height - 0.01);
}

function lamps(gentle) {
  const sun = new DirectionalLight(0xfff0da, 2.9);
  sun.position.set(-4.2, 9, 4.6);
  sun.castShadow = true;
  sun.shadow.mapSize.setScalar(gentle ? 512 : 1024);
  sun.shadow.radius = 5;
  sun.shadow.bias = -0.0006;
  sun.shadow.normalBias = 0.02;
  Object.assign(sun.shadow.camera, { left: -5.4, right: 5.4, top: 5.4, bottom: -5.4, near: 2, far: 20 });
  return [sun, new HemisphereLight(0xfff6e8, 0x6d4a2c, gentle ? 1.5 : 0.35)];
}

export function makeScenery(gentle) {
  const scene = new Scene();
  const foot = plinth(gentle);
  const shade = ground();
  scene.add(board(gentle), foot, shade, ...lamps(gentle));
  return { scene, foot };
}
