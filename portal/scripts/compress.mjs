// Writes a compressed copy beside each text file of the built page; the engine serves it to browsers that accept gzip.
// Fails if the scripts of the first load, or what a browser needs for the first paint, are larger than their budgets.
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const BUDGET = 250_000;
/** What arrives at 50 kB/s in one second: with three round trips, something is on screen well within three seconds. */
const FIRST_PAINT = 50_000;
const dist = new URL("../dist/", import.meta.url).pathname;

const sizes = new Map();
const compress = (folder) => {
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) compress(path);
    else if (/\.(js|css|html|svg|json)$/.test(name)) {
      const zipped = gzipSync(readFileSync(path), { level: 9 });
      writeFileSync(`${path}.gz`, zipped);
      sizes.set(path.slice(dist.length), zipped.length);
    }
  }
};
compress(dist);

// The first load is what index.html names, one language and the first screen's own chunk at most.
const html = readFileSync(join(dist, "index.html"), "utf8");
let first = 0;
for (const [path, size] of sizes) if (path.endsWith(".js") && html.includes(path)) first += size;
const language = Math.max(...[...sizes].filter(([path]) => /assets\/(en|ja|ko)-/.test(path)).map(([, size]) => size));
const total = first + language;
console.log(`scripts of the first load: ${Math.round(total / 1000)} kB (gzip), budget ${BUDGET / 1000} kB`);
if (total > BUDGET) {
  console.error("the first load is over its budget: load screens or libraries later");
  process.exit(1);
}

// The first paint needs the document, its style sheets, and the scripts that are no modules.
const blocking = [...html.matchAll(/<link rel="stylesheet"[^>]* href="\/([^"]+)"|<script src="\/([^"]+)"/g)].map(
  (found) => found[1] ?? found[2],
);
const paint = ["index.html", "mark.svg", ...blocking].reduce((sum, path) => sum + (sizes.get(path) ?? 0), 0);
console.log(`first paint: ${(paint / 1000).toFixed(1)} kB (gzip), budget ${FIRST_PAINT / 1000} kB`);
if (!html.includes('class="boot"') || blocking.length === 0 || paint > FIRST_PAINT) {
  console.error("the first paint is over its budget, or shows nothing before the scripts arrive");
  process.exit(1);
}
