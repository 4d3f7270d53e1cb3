// Takes pictures of screens over the exchange of the demonstrations:
//   node tests/shots.mjs FOLDER WIDTH SCHEME LANGUAGE [POST,POST] USER:PATH...
// A POST is the rest of a /test/ address of the example `portal`, such as quarantine/dirty.
import { mkdirSync } from "node:fs";
import { open, signIn, startBrowser, startServer } from "./journeys/support.mjs";

const [folder, width, scheme, locale, ...rest] = process.argv.slice(2);
const posts = rest[0]?.includes(":") ? [] : (rest.shift() ?? "").split(",");
mkdirSync(folder, { recursive: true });
const program = process.env.PORTAL_SERVER ?? new URL("../../target/debug/examples/portal", import.meta.url).pathname;
const server = await startServer(program, new URL("../dist", import.meta.url).pathname);
const browser = await startBrowser();
for (const post of posts.filter((post) => post !== "")) await server.post(`/test/${post}`);
const guests = new Map();
for (const shot of rest) {
  const [user, path] = [shot.slice(0, shot.indexOf(":")), shot.slice(shot.indexOf(":") + 1)];
  if (!guests.has(user)) {
    const guest = await open(browser, { width: Number(width), scheme, locale });
    await signIn(guest.page, server.url, user);
    guests.set(user, guest);
  }
  const { page } = guests.get(user);
  await page.goto(server.url + path);
  await page.locator("#main h1").first().waitFor();
  await page.waitForTimeout(500);
  await page.screenshot({
    path: `${folder}/${user}${path.replaceAll(/[/?=]/g, "_")}-${width}-${scheme}-${locale}.png`,
    fullPage: true,
  });
}
for (const [user, guest] of guests) for (const fault of guest.faults) console.log(`${user}: ${fault}`);
await browser.close();
server.stop();
