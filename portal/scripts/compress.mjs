// Writes a compressed copy beside each text file of the built page; the engine serves it to browsers that accept gzip.
// Fails if the scripts of the first load are larger than the budget.
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const BUDGET = 250_000;
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
