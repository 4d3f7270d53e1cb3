// Sign-in by a provider of OpenID Connect: oidc-provider, with its own pages for sign-in and consent.
import { once } from "node:events";
import { Provider } from "oidc-provider";
import { assert } from "./support.mjs";

/** The people of the provider, and their networks as PeeringDB names them. */
const PEOPLE = {
  kim: [{ asn: 64500, perms: 15, name: "Aoba Networks", id: 1 }],
  lee: [{ asn: 64666, perms: 15, name: "Elsewhere", id: 2 }],
};

/** Starts a provider; returns its issuer, and its end. */
async function startProvider(redirect) {
  const server = await import("node:http").then((http) => http.createServer());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: "millrace",
        client_secret: "hidden",
        redirect_uris: [redirect],
        grant_types: ["authorization_code"],
        response_types: ["code"],
      },
    ],
    claims: { openid: ["sub"], profile: ["preferred_username"], networks: ["networks"] },
    cookies: { keys: ["a key of the journeys"] },
    findAccount: (_, id) =>
      id in PEOPLE
        ? { accountId: id, claims: () => ({ sub: id, preferred_username: id, networks: PEOPLE[id] }) }
        : undefined,
  });
  server.on("request", provider.callback());
  return { issuer, stop: () => server.close() };
}

/** Signs a person in at the provider, and agrees. */
async function signInAt(page, person) {
  // The provider's page names a font of another host.
  await page.route("https://fonts.googleapis.com/**", (route) => route.abort());
  await page.locator("input[name=login]").fill(person);
  await page.locator("input[name=password]").fill("any");
  await page.locator("button[type=submit]").click();
  await page.getByRole("button", { name: "Continue" }).click();
}

export const journeys = [
  {
    name: "sign-in by a provider: a member of a known network returns to the same place, another learns why not",
    run: async ({ guest, down, restart, url }) => {
      const origin = new URL(url).origin;
      const redirect = `${origin}/sign-in/callback`;
      const provider = await startProvider(redirect);
      try {
        down();
        await restart({ OIDC_ISSUER: provider.issuer, OIDC_SECRET: "hidden", OIDC_REDIRECT: redirect });
        const { page, t } = await guest();
        await page.goto(`${origin}/services?q=transit`);
        await page.getByRole("button", { name: t("signin.byProvider", { name: "PeeringDB" }) }).click();
        await signInAt(page, "kim");
        await page.getByRole("heading", { level: 1, name: t("nav.services") }).waitFor();
        assert(new URL(page.url()).searchParams.get("q") === "transit", `the page is at ${page.url()}`);
        await page.getByText("transit-baikal").first().waitFor();
        // A person whose network is no member.
        const other = await guest();
        await other.page.goto(origin);
        await other.page.getByRole("button", { name: other.t("signin.byProvider", { name: "PeeringDB" }) }).click();
        await signInAt(other.page, "lee");
        await other.page.getByText(/AS64666/).waitFor();
        assert(!other.page.url().includes("code="), "the code stays in the address");
        // The same address once more, without a sign-in that began here.
        await other.page.goto(`${redirect}?code=x&state=y&iss=${encodeURIComponent(provider.issuer)}`);
        await other.page.locator(".notice[data-tone=bad]").waitFor();
        await other.page.locator("#signin-name").waitFor();
      } finally {
        provider.stop();
      }
    },
  },
];
