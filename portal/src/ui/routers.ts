// The configuration of a member's router for one end, in three dialects. People paste this text into routers, so texts
// of other accounts are reduced to plain characters.

import type { RegisteredIp, Vlan } from "../api/types";

export type Dialect = "ios-xr" | "junos" | "linux";

export const DIALECTS: { id: Dialect; name: string; port: string }[] = [
  { id: "ios-xr", name: "Cisco IOS XR", port: "TenGigE0/0/0/0" },
  { id: "junos", name: "Juniper Junos", port: "xe-0/0/0" },
  { id: "linux", name: "Linux (FRR, BIRD)", port: "eth0" },
];

export type RouterEnd = {
  vlan: Vlan;
  /** A description of the interface's destination. */
  about: string;
  /** The contracted rate, to which the router limits what it sends; null for the speed of the port. */
  rateMbps: number | null;
  /** The addresses of an end of a peering LAN, each with its prefix length. */
  addresses: string[];
  /** True for a peering LAN, in which a router may send only IPv4, ARP and IPv6. */
  lan: boolean;
};

/** Returns a text as plain characters: no quote, no line break, no character that a shell or a router interprets. */
export function plain(text: string): string {
  return text
    .replace(/[^A-Za-z0-9 ._-]/g, "")
    .replace(/\s+/g, " ")
    .trim()
    .slice(0, 60);
}

/**
 * Returns each address with the prefix length of its network. An address without a network does not belong to the LAN.
 */
export function withLengths(ips: readonly RegisteredIp[]): string[] {
  return ips.flatMap(({ address, length }) => (length === null ? [] : [`${address}/${length}`]));
}

/** Returns true for a link-local IPv6 address (fe80::/10). */
const isLinkLocal = (address: string) => /^fe[89ab]/i.test(address);

const number = (vid: number | null | undefined) => (typeof vid === "number" ? String(vid) : "<vid>");

/** Returns the tags of an end as texts, the outer one first. */
function tags(vlan: Vlan): string[] {
  if (vlan.type === "port") return [];
  return vlan.type === "dot1q" ? [number(vlan.vlan)] : [number(vlan.outer), number(vlan.inner)];
}

/**
 * Returns the number of a subinterface of IOS XR, which is at most 2147483647. Two tags give the outer one followed by
 * four digits of the inner one, so that no two ends of a port have the same number. A tag that is not known yet gives a
 * placeholder, which no router accepts.
 */
function subinterface(outer: string, inner: string | undefined): string {
  if (inner === undefined) return outer;
  return /\D/.test(outer + inner) ? "<free-number>" : `${outer}${inner.padStart(4, "0")}`;
}

function iosXr(end: RouterEnd, port: string): string[] {
  const [outer, inner] = tags(end.vlan);
  const name = outer === undefined ? port : `${port}.${subinterface(outer, inner)}`;
  const policy = `rate-${end.rateMbps}m`;
  return [
    ...(end.rateMbps === null
      ? []
      : [
          `policy-map ${policy}`,
          " class class-default",
          `  shape average ${end.rateMbps} mbps`,
          " !",
          " end-policy-map",
          "!",
        ]),
    `interface ${name}`,
    ` description ${end.about}`,
    ...(outer === undefined
      ? []
      : [inner === undefined ? ` encapsulation dot1q ${outer}` : ` encapsulation dot1ad ${outer} dot1q ${inner}`]),
    ...end.addresses.map((address) =>
      isLinkLocal(address)
        ? ` ipv6 address ${address.split("/")[0]} link-local`
        : ` ipv${address.includes(":") ? 6 : 4} address ${address}`,
    ),
    ...(end.lan ? [" ipv6 nd suppress-ra"] : []),
    ...(end.rateMbps === null ? [] : [` service-policy output ${policy}`]),
    "!",
  ];
}

function junos(end: RouterEnd, port: string): string[] {
  const [outer, inner] = tags(end.vlan);
  // Many platforms have no units above 16385, too few for all pairs of tags. The member must choose a free one; the
  // router refuses the placeholder.
  const unit = outer === undefined ? "0" : inner === undefined ? outer : "<free-unit>";
  const at = `set interfaces ${port}`;
  return [
    ...(outer === undefined ? [] : [`${at} flexible-vlan-tagging`]),
    ...(inner === undefined
      ? []
      : [`${at} gigether-options ethernet-switch-profile tag-protocol-id [ 0x8100 0x88a8 ]`]),
    `${at} unit ${unit} description "${end.about}"`,
    ...(outer === undefined
      ? []
      : [
          inner === undefined
            ? `${at} unit ${unit} vlan-id ${outer}`
            : `${at} unit ${unit} vlan-tags outer 0x88a8.${outer} inner 0x8100.${inner}`,
        ]),
    ...end.addresses.map(
      (address) => `${at} unit ${unit} family inet${address.includes(":") ? "6" : ""} address ${address}`,
    ),
    ...(end.lan ? [`${at} unit ${unit} family inet no-redirects`, `set protocols lldp interface ${port} disable`] : []),
    ...(end.rateMbps === null
      ? []
      : [
          `${at} per-unit-scheduler`,
          `set class-of-service interfaces ${port} unit ${unit} shaping-rate ${end.rateMbps}m`,
        ]),
  ];
}

function linux(end: RouterEnd, port: string): string[] {
  const [outer, inner] = tags(end.vlan);
  const first = outer === undefined ? port : `${port}.${outer}`;
  const name = inner === undefined ? first : `${first}.${inner}`;
  const key = (family: number) => `net/ipv${family}/conf/${name}`;
  return [
    ...(outer === undefined
      ? []
      : [`ip link add link ${port} name ${first} type vlan${inner === undefined ? "" : " proto 802.1ad"} id ${outer}`]),
    // The interface of the inner tag cannot be up while that of the outer one is down.
    ...(inner === undefined
      ? []
      : [`ip link add link ${first} name ${name} type vlan id ${inner}`, `ip link set ${first} up`]),
    `ip link set ${name} alias "${end.about}"`,
    ...(end.lan
      ? [
          `sysctl -w ${key(4)}/arp_ignore=1 ${key(4)}/arp_announce=2 ${key(4)}/send_redirects=0`,
          `sysctl -w ${key(6)}/accept_ra=0 ${key(6)}/router_solicitations=0`,
        ]
      : []),
    ...end.addresses.map((address) => `ip address add ${address} dev ${name}`),
    ...(end.rateMbps === null
      ? []
      : [`tc qdisc replace dev ${name} root tbf rate ${end.rateMbps}mbit burst 256kb latency 50ms`]),
    `ip link set ${name} up`,
  ];
}

/** Returns the configuration of a router. The interface name is an example: the exchange does not know the member's. */
export function routerConfig(dialect: Dialect, end: RouterEnd): string {
  const port = DIALECTS.find((known) => known.id === dialect)?.port ?? "";
  const safe = { ...end, about: plain(end.about) };
  return { "ios-xr": iosXr, junos, linux }[dialect](safe, port).join("\n");
}
