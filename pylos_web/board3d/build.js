// Bundles the 3D board into ../static/dist, where the page finds it.

import { build } from "esbuild";
import { copyFile, mkdir } from "node:fs/promises";

const target = new URL("../static/dist/", import.meta.url).pathname;
await mkdir(target, { recursive: true });
await build({
  entryPoints: [new URL("src/board.js", import.meta.url).pathname],
  bundle: true,
  format: "esm",
  minify: true,
  target: "es2022",
  legalComments: "none",
  outfile: `${target}board3d.js`,
});
await copyFile(new URL("node_modules/three/LICENSE", import.meta.url), `${target}three-LICENSE.txt`);
