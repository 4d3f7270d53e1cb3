// Texts that leave the page: addresses after a sign-in, files for spreadsheets, lines for routers.
import { describe, expect, it } from "vitest";

import { parseServicesSearch } from "../../src/screens/services.search";
import { ownAddress } from "../../src/screens/signin";
import { csv } from "../../src/ui/csv";
import { DIALECTS, plain, routerConfig, withLengths, type RouterEnd } from "../../src/ui/routers";

describe("the address after a sign-in by the provider", () => {
  it("is one of this page, also if the link before it had a path like another host", () => {
    const own = (path: string) => `${location.origin}${path}`;
    expect(ownAddress("/services?q=transit")).toBe(own("/services?q=transit"));
    for (const evil of [
      "//evil.example/x",
      "///evil.example/x",
      "/\\evil.example/x",
      "https://evil.example/",
      "javascript:alert(1)",
      "data:text/html,x",
      "http://[",
      null,
    ]) {
      const there = ownAddress(evil);
      expect(new URL(there, location.origin).origin, `${evil}`).toBe(location.origin);
    }
  });
});

describe("a file for spreadsheets", () => {
  it("quotes what needs quotes, and runs no formula that another member has put into a name", () => {
    expect(
      csv([
        ["name", "rate"],
        ['a "b", c', 7],
        [null, 0],
      ]),
    ).toBe('name,rate\r\n"a ""b"", c",7\r\n,0\r\n');
    for (const formula of [
      '=HYPERLINK("https://evil.example")',
      "+1",
      "-1",
      "@SUM(A1)",
      "\t=1",
      "＝1+1",
      "＋1",
      "－1",
      "ー1",
      "＠SUM(A1)",
    ]) {
      expect(
        csv([[formula]])
          .replace(/^"/, "")
          .startsWith("'"),
        formula,
      ).toBe(true);
    }
  });
});

describe("the configuration of a router", () => {
  const end: RouterEnd = {
    vlan: { type: "dot1q", vlan: 100 },
    about: "sv-7 transit",
    rateMbps: 200,
    addresses: [],
    lan: false,
  };

  it("has the tags of the end in every dialect", () => {
    expect(routerConfig("ios-xr", end)).toContain("encapsulation dot1q 100\n");
    expect(routerConfig("junos", end)).toContain("unit 100 vlan-id 100\n");
    expect(routerConfig("linux", end)).toContain("name eth0.100 type vlan id 100\n");
    const qinq: RouterEnd = { ...end, vlan: { type: "qinq", outer: 100, inner: 7 } };
    expect(routerConfig("ios-xr", qinq)).toContain("encapsulation dot1ad 100 dot1q 7\n");
    expect(routerConfig("junos", qinq)).toContain("vlan-tags outer 0x88a8.100 inner 0x8100.7\n");
    expect(routerConfig("linux", qinq)).toContain("type vlan proto 802.1ad id 100\n");
    for (const { id } of DIALECTS)
      expect(routerConfig(id, { ...end, vlan: { type: "port" } }), id).not.toMatch(/encapsulation|vlan/);
  });

  it("gives each end of a port a name of its own", () => {
    const vlans: RouterEnd["vlan"][] = [
      { type: "dot1q", vlan: 7 },
      { type: "qinq", outer: 100, inner: 7 },
      { type: "qinq", outer: 200, inner: 7 },
      { type: "qinq", outer: 10, inner: 4094 },
      { type: "qinq", outer: 4094, inner: 4094 },
    ];
    const names = (id: (typeof DIALECTS)[number]["id"], name: RegExp) =>
      vlans.map((vlan) => name.exec(routerConfig(id, { ...end, vlan }))?.[1]);
    expect(names("ios-xr", /^interface \S+\.(\S+)$/m)).toEqual(["7", "1000007", "2000007", "104094", "40944094"]);
    expect(names("linux", /^ip link set eth0\.(\S+) alias/m)).toEqual(["7", "100.7", "200.7", "10.4094", "4094.4094"]);
    // Junos has fewer units than pairs of tags: the member chooses a free one.
    expect(names("junos", / unit (\S+) description/)).toEqual(["7", ...Array<string>(4).fill("<free-unit>")]);
    expect(routerConfig("ios-xr", { ...end, vlan: { type: "qinq", outer: 100, inner: null } })).toContain(
      "interface TenGigE0/0/0/0.<free-number>\n",
    );
  });

  it("limits what is sent to the contracted rate, and not without one", () => {
    for (const { id } of DIALECTS) {
      expect(routerConfig(id, end), id).toMatch(/200 ?m/);
      expect(routerConfig(id, { ...end, rateMbps: null }), id).not.toMatch(/shap|tbf|null/);
    }
  });

  it("keeps a router of a peering LAN from advertisements, and gives it its addresses", () => {
    const lan: RouterEnd = {
      ...end,
      vlan: { type: "port" },
      rateMbps: null,
      lan: true,
      addresses: ["192.0.2.11/24", "2001:db8::11/64"],
    };
    for (const { id } of DIALECTS)
      for (const address of lan.addresses) expect(routerConfig(id, lan), id).toContain(address);
    expect(routerConfig("ios-xr", lan)).toContain("ipv6 nd suppress-ra");
  });

  it("takes nothing into a shell from a name that another member chose", () => {
    const evil = 'x"; rm -rf / #\n$(reboot)`id`\u2028';
    expect(plain(evil)).toBe("x rm -rf rebootid");
    for (const { id } of DIALECTS) {
      const lines = routerConfig(id, { ...end, about: evil });
      expect(lines, id).not.toMatch(/[;`$#]/);
      expect(lines.split("\n").length, id).toBe(routerConfig(id, end).split("\n").length);
    }
  });

  it("has the addresses whose network is known, and the link-local one in the words of each router", () => {
    const ips = [
      { id: "ip-1", address: "192.0.2.11", length: 24 },
      { id: "ip-2", address: "fe80::1", length: 64 },
      { id: "ip-3", address: "198.51.100.7", length: null },
    ];
    const addresses = withLengths(ips);
    expect(addresses).toEqual(["192.0.2.11/24", "fe80::1/64"]);
    const lan: RouterEnd = { ...end, lan: true, addresses };
    expect(routerConfig("ios-xr", lan)).toContain(" ipv6 address fe80::1 link-local\n");
    expect(routerConfig("ios-xr", lan)).not.toContain("fe80::1/64");
    expect(routerConfig("junos", lan)).toContain("family inet6 address fe80::1/64");
    expect(routerConfig("linux", lan)).toContain("ip address add fe80::1/64 dev");
  });

  it("brings the interface of the outer tag up before that of the inner one", () => {
    const lines = routerConfig("linux", { ...end, vlan: { type: "qinq", outer: 100, inner: 7 } }).split("\n");
    const at = (line: string) => lines.indexOf(line);
    expect(at("ip link set eth0.100 up")).toBeGreaterThan(-1);
    expect(at("ip link set eth0.100.7 up")).toBeGreaterThan(at("ip link set eth0.100 up"));
    expect(routerConfig("linux", end).match(/ up$/gm)?.length).toBe(1);
  });
});

it("the address of the services has the hidden columns, and nothing else that somebody writes there", () => {
  expect(parseServicesSearch({ q: "x", hide: ["rate", "evil"] })).toEqual({ q: "x", state: "", hide: ["rate"] });
  expect(parseServicesSearch({ hide: "rate" })).toEqual({ q: "", state: "" });
});
