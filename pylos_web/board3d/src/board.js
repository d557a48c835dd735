// The 3D board: draws what it is told, says which cell was clicked. It renders on demand only.

import {
  CircleGeometry,
  Mesh,
  MeshBasicMaterial,
  NeutralToneMapping,
  PCFShadowMap,
  PMREMGenerator,
  PerspectiveCamera,
  Raycaster,
  SphereGeometry,
  Sprite,
  SpriteMaterial,
  Vector2,
  Vector3,
  WebGLRenderer,
} from "three";
import { OrbitControls } from "three/examples/jsm/controls/OrbitControls.js";
import { RoomEnvironment } from "three/examples/jsm/environments/RoomEnvironment.js";
import { stored } from "../../static/dom.js";
import { CELLS } from "../../static/geometry.js";
import { BOARD, LEVEL_HEIGHT, PLINTH, RADIUS, SINK } from "./layout.js";
import { still } from "./motion.js";
import { makeScenery } from "./scenery.js";
import { Spheres } from "./spheres.js";
import { dotTexture, glowTexture } from "./textures.js";

const CLICK_DISTANCE = 6; // pixels: beyond that it was a drag
const PULSE_FRAME = 50; // milliseconds between two frames where only outlines pulse
const VIEW = { polar: 0.78, wide: 0.2, tall: 0.12 };
const CENTRE = new Vector3(0, 0, 0);
const LONGEST_QUEUE = 6; // pictures: beyond that the page is far ahead, and motion is skipped
const MARGIN = 0.93; // of the window, for the board

function sameCells(one, other) {
  return other !== null && one.cells.every((cell, index) => cell === other.cells[index]);
}

/** Whether the processor draws, and not a graphics card: then less is asked of it.
 *
 * `localStorage["pylos.quality"]`, "full" or "gentle", decides otherwise. */
function isGentle() {
  const wanted = stored(localStorage, "quality");
  const context = document.createElement("canvas").getContext("webgl2");
  if (!context) throw new Error("there is no WebGL 2");
  const facts = context.getExtension("WEBGL_debug_renderer_info");
  const name = String(context.getParameter(facts ? facts.UNMASKED_RENDERER_WEBGL : context.RENDERER));
  context.getExtension("WEBGL_lose_context")?.loseContext();
  if (wanted) return wanted === "gentle";
  return /swiftshader|llvmpipe|softpipe|software/i.test(name);
}

export class Board3D {
  constructor(container, onCell) {
    this.container = container;
    this.onCell = onCell;
    const gentle = isGentle();
    this.renderer = new WebGLRenderer({ antialias: !gentle, alpha: true, powerPreference: "low-power" });
    this.renderer.setPixelRatio(gentle ? 1 : Math.min(devicePixelRatio, 2));
    this.renderer.toneMapping = NeutralToneMapping;
    this.renderer.shadowMap.enabled = true;
    this.renderer.shadowMap.type = PCFShadowMap;
    this.renderer.shadowMap.autoUpdate = false;
    const canvas = this.renderer.domElement;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", "The board in 3D. The 2D board holds the same, for the keyboard.");
    container.append(canvas);

    const { scene, foot } = makeScenery(gentle);
    this.scene = scene;
    this.foot = foot;
    if (!gentle) {
      const generator = new PMREMGenerator(this.renderer);
      scene.environment = generator.fromScene(new RoomEnvironment(), 0.04).texture;
      scene.environmentIntensity = 0.5;
      generator.dispose();
    }

    this.camera = new PerspectiveCamera(27, 1, 0.5, 60);
    this.controls = new OrbitControls(this.camera, canvas);
    this.controls.enablePan = false;
    this.controls.minPolarAngle = 0.02;
    this.controls.maxPolarAngle = 1.38;
    this.controls.target.copy(CENTRE);
    this.controls.addEventListener("change", () => this.request());
    this.flipped = false;

    this.spheres = new Spheres(scene, CELLS, gentle);
    this.makeMarks();
    this.picture = null;
    this.waiting = [];
    this.hovered = null;
    this.frame = null;
    this.bindPointer(canvas);
    new ResizeObserver(() => this.resize()).observe(container);
    this.resize();
  }

  makeMarks() {
    const glow = new MeshBasicMaterial({
      map: glowTexture(),
      transparent: true,
      depthWrite: false,
      toneMapped: false,
    });
    const disc = new CircleGeometry(0.5, 32).rotateX(-Math.PI / 2);
    const light = new SpriteMaterial({ map: glow.map, depthTest: false, toneMapped: false });
    this.glows = CELLS.map((_, cell) => {
      const grounded = cell < 16;
      // a light between four spheres would be cut by them: there it faces the viewer
      const mesh = grounded ? new Mesh(disc, glow.clone()) : new Sprite(light.clone());
      mesh.position.copy(this.spheres.points[cell]);
      mesh.position.y -= grounded ? SINK - 0.014 : 0.22;
      mesh.visible = false;
      mesh.renderOrder = 2;
      this.scene.add(mesh);
      return mesh;
    });
    const ghost = new MeshBasicMaterial({ transparent: true, opacity: 0.42, depthWrite: false });
    this.ghost = new Mesh(new SphereGeometry(RADIUS, 32, 20), ghost);
    this.ghost.visible = false;
    this.scene.add(this.ghost);
    this.lastMark = new Sprite(new SpriteMaterial({ map: dotTexture(), transparent: true }));
    this.lastMark.scale.setScalar(0.2);
    this.lastMark.visible = false;
    this.scene.add(this.lastMark);
    // what the pointer meets: a ball on every cell, spheres and empty places alike
    const geometry = new SphereGeometry(RADIUS, 12, 8);
    const unseen = new MeshBasicMaterial({ visible: false });
    this.targets = CELLS.map((_, cell) => {
      const mesh = new Mesh(geometry, unseen);
      mesh.position.copy(this.spheres.points[cell]);
      mesh.userData.cell = cell;
      mesh.updateMatrixWorld();
      return mesh;
    });
  }

  // Told by the page

  /** Show a picture; where spheres are still moving, after they have come to rest. */
  draw(picture) {
    this.waiting.push(picture);
    if (this.waiting.length > LONGEST_QUEUE) {
      this.spheres.finish();
      this.waiting.splice(0, this.waiting.length - 1);
    }
    if (!this.moving || sameCells(picture, this.picture)) this.drawNext();
  }

  drawNext() {
    while (this.waiting.length > 0) {
      const picture = this.waiting.shift();
      const moved = this.spheres.arrange(picture.cells, this.picture ? performance.now() : null);
      this.picture = picture;
      if (moved) this.renderer.shadowMap.needsUpdate = true;
      if (this.moving) break;
    }
    const { marks, cells, hint } = this.picture;
    const outlined = marks.selected !== null ? [marks.selected] : [...marks.removable];
    const hinted = hint.filter((cell) => cells[cell] !== ".");
    this.spheres.outlineCells(outlined, hinted, marks.removable.size > 0);
    this.drawMarks();
    this.request();
  }

  drawMarks() {
    const { cells, marks, last, hint, turn } = this.picture;
    this.glows.forEach((mesh, cell) => {
      const hinted = hint.includes(cell);
      const target = marks.targets.has(cell);
      mesh.visible = (target || hinted) && cells[cell] === ".";
      const hovered = this.hovered === cell;
      mesh.scale.setScalar(hinted ? 1.2 : hovered ? 1.15 : 0.6);
      mesh.material.opacity = hinted || hovered ? 1 : 0.75;
      mesh.material.color.set(hinted ? 0x7be0b0 : 0xffffff);
    });
    const over = this.hovered !== null && marks.targets.has(this.hovered);
    this.ghost.visible = over;
    if (over) {
      this.ghost.position.copy(this.spheres.points[this.hovered]);
      this.ghost.material.color.set(turn === "W" ? 0xfff4dd : 0x2a2019);
    }
    const shown = last.find((cell) => cells[cell] !== ".");
    this.lastMark.visible = shown !== undefined && !this.spheres.motions.size;
    if (shown !== undefined) {
      this.lastMark.position.copy(this.spheres.points[shown]);
      this.lastMark.position.y += RADIUS + 0.03;
    }
  }

  flip(flipped) {
    if (this.flipped === flipped) return;
    this.flipped = flipped;
    this.resetView();
  }

  restyle() {
    this.request();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.container;
    if (!width || !height) return;
    const sideways = width > height;
    this.renderer.setSize(width, height, false);
    this.camera.aspect = width / height;
    this.camera.updateProjectionMatrix();
    if (this.sideways !== sideways) {
      this.sideways = sideways;
      this.foot.rotation.y = sideways ? Math.PI / 2 : 0;
      this.spheres.turnTrays(sideways);
      this.renderer.shadowMap.needsUpdate = true;
      this.resetView();
    } else {
      this.fit(); // the viewer's angle stays
    }
    this.request();
  }

  /** Stand where the whole plinth and a full pyramid just fit, with both in the middle. */
  fit() {
    const { camera, controls } = this;
    const away = new Vector3().subVectors(camera.position, CENTRE).normalize();
    camera.clearViewOffset();
    let [near, far] = [3, 60];
    for (let step = 0; step < 16; step += 1) {
      const middle = (near + far) / 2;
      camera.position.copy(away).multiplyScalar(middle).add(CENTRE);
      const box = this.extent();
      if (box.width > MARGIN || box.height > MARGIN) near = middle;
      else far = middle;
    }
    camera.position.copy(away).multiplyScalar(far).add(CENTRE);
    const { x, y } = this.extent();
    const { clientWidth: width, clientHeight: height } = this.container;
    camera.setViewOffset(width, height, (x / 2) * width, (-y / 2) * height, width, height);
    controls.minDistance = far * 0.45;
    controls.maxDistance = far * 1.6;
    controls.update();
  }

  /** The part of the picture that the board takes up, 1 being all of it, and its middle. */
  extent() {
    this.camera.lookAt(CENTRE);
    this.camera.updateMatrixWorld();
    const points = this.corners().map((point) => point.project(this.camera));
    const range = (axis) => {
      const values = points.map((point) => point[axis]);
      return [Math.min(...values), Math.max(...values)];
    };
    const [[left, right], [low, high]] = [range("x"), range("y")];
    return {
      width: (right - left) / 2,
      height: (high - low) / 2,
      x: (left + right) / 2,
      y: (low + high) / 2,
    };
  }

  corners() {
    const [x, z] = this.sideways
      ? [PLINTH.depth / 2, PLINTH.width / 2]
      : [PLINTH.width / 2, PLINTH.depth / 2];
    const low = -SINK - BOARD.height - PLINTH.height;
    const found = [new Vector3(0, 3 * LEVEL_HEIGHT + RADIUS, 0)];
    for (const [a, b] of [[1, 1], [1, -1], [-1, 1], [-1, -1]]) {
      found.push(new Vector3(a * x, low, b * z), new Vector3(a * x, low + 0.7, b * z));
    }
    return found;
  }

  resetView() {
    const azimuth = (this.sideways ? VIEW.wide : VIEW.tall) + (this.flipped ? Math.PI : 0);
    const polar = this.sideways ? VIEW.polar : VIEW.polar - 0.2;
    this.camera.position.setFromSphericalCoords(10, polar, azimuth).add(CENTRE);
    this.fit();
    this.request();
  }

  /** Where a cell is seen, in pixels of the window: for whoever wants to click there. */
  screenPoint(cell) {
    const point = new Vector3().copy(this.spheres.points[cell]).project(this.camera);
    const box = this.renderer.domElement.getBoundingClientRect();
    return {
      x: box.left + ((point.x + 1) / 2) * box.width,
      y: box.top + ((1 - point.y) / 2) * box.height,
    };
  }

  get moving() {
    return this.spheres.motions.size > 0;
  }

  /** Whether everything that was told is shown. */
  get settled() {
    return !this.moving && this.waiting.length === 0;
  }

  // The pointer

  bindPointer(canvas) {
    let down = null;
    canvas.addEventListener("pointerdown", (event) => {
      down = { x: event.clientX, y: event.clientY };
    });
    canvas.addEventListener("pointerup", (event) => {
      if (!down || event.button !== 0) return;
      const moved = Math.hypot(event.clientX - down.x, event.clientY - down.y);
      down = null;
      const cell = moved <= CLICK_DISTANCE ? this.pick(event) : null;
      if (cell !== null) this.onCell(cell);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (event.pointerType !== "touch") this.hover(this.pick(event));
    });
    canvas.addEventListener("pointerleave", () => this.hover(null));
  }

  hover(cell) {
    if (cell === this.hovered || !this.picture) return;
    this.hovered = cell;
    const { marks } = this.picture;
    const active =
      cell !== null && (marks.targets.has(cell) || marks.movable.has(cell) || marks.removable.has(cell));
    this.renderer.domElement.style.cursor = active ? "pointer" : "grab";
    this.drawMarks();
    this.request();
  }

  /** The cell under the pointer: a sphere, or an empty place that offers something. */
  pick(event) {
    if (!this.picture) return null;
    const box = this.renderer.domElement.getBoundingClientRect();
    const point = new Vector2(
      ((event.clientX - box.left) / box.width) * 2 - 1,
      1 - ((event.clientY - box.top) / box.height) * 2,
    );
    const ray = new Raycaster();
    ray.setFromCamera(point, this.camera);
    const { cells, marks } = this.picture;
    const open = this.targets.filter(
      ({ userData: { cell } }) => cells[cell] !== "." || marks.targets.has(cell),
    );
    const hit = ray.intersectObjects(open, false)[0];
    return hit ? hit.object.userData.cell : null;
  }

  // Frames

  request() {
    this.frame ??= requestAnimationFrame((now) => this.render(now));
  }

  render(now) {
    this.frame = null;
    if (!this.container.clientWidth) return;
    const wasMoving = this.moving;
    const moving = this.spheres.step(performance.now());
    if (wasMoving) this.renderer.shadowMap.needsUpdate = true;
    if (wasMoving && !moving) {
      this.drawNext();
      this.drawMarks();
    }
    this.spheres.pulse(now);
    this.renderer.render(this.scene, this.camera);
    if (this.moving) this.request();
    else if (this.spheres.pulsing && !still.matches) setTimeout(() => this.request(), PULSE_FRAME);
  }
}
