import { createRootRoute, createRoute, createRouter, Link, type RouterHistory } from "@tanstack/react-router";
import { lazy, Suspense, type FunctionComponent } from "react";

import { useText } from "../i18n/text";
import { parseAttackSearch } from "../screens/attack.search";
import { parseAuditSearch } from "../screens/audit.search";
import { parseBillingSearch } from "../screens/billing.search";
import { Home } from "../screens/home";
import { parseServicesSearch } from "../screens/services.search";
import { Empty, Notice, ScreenHead, Skeleton } from "../ui/parts";
import { PUBLIC, Shell } from "./shell";

/** Returns a screen whose code is loaded with its first use. */
function later<K extends string>(load: () => Promise<Record<K, FunctionComponent>>, name: K): FunctionComponent {
  const Screen = lazy<FunctionComponent>(() => load().then((module) => ({ default: module[name] })));
  return function Later() {
    return (
      <Suspense fallback={<Skeleton lines={8} />}>
        <Screen />
      </Suspense>
    );
  };
}

function Missing() {
  const t = useText();
  return (
    <>
      <ScreenHead title={t("missing.title")} />
      <Empty title={t("missing.about")} action={<Link to="/">{t("nav.home")}</Link>} />
    </>
  );
}

/** The screen for an error of the page itself. */
function Broken({ error }: { error: unknown }) {
  const t = useText();
  return (
    <Notice tone="bad" title={t("broken.title")} live>
      <p>{t("broken.about")}</p>
      <code>{error instanceof Error ? error.message : String(error)}</code>
    </Notice>
  );
}

const root = createRootRoute({ component: Shell, notFoundComponent: Missing, errorComponent: Broken });

/** The route of a screen whose code is loaded with its first use. */
function screen<P extends string, K extends string>(
  path: P,
  load: () => Promise<Record<K, FunctionComponent>>,
  name: K,
) {
  return createRoute({ getParentRoute: () => root, path, component: later(load, name) });
}

// Screens that keep filters or periods in their address. The types of links come from these routes.
const services = createRoute({
  getParentRoute: () => root,
  path: "/services",
  component: later(() => import("../screens/services"), "Services"),
  validateSearch: parseServicesSearch,
});
const audit = createRoute({
  getParentRoute: () => root,
  path: "/audit",
  component: later(() => import("../screens/audit"), "Audit"),
  validateSearch: parseAuditSearch,
});
const billing = createRoute({
  getParentRoute: () => root,
  path: "/billing",
  component: later(() => import("../screens/billing"), "Billing"),
  validateSearch: parseBillingSearch,
});
const attack = createRoute({
  getParentRoute: () => root,
  path: "/attack",
  component: later(() => import("../screens/attack"), "UnderAttack"),
  validateSearch: parseAttackSearch,
});

const tree = root.addChildren([
  createRoute({ getParentRoute: () => root, path: "/", component: Home }),
  screen("/order", () => import("../screens/order"), "OrderPath"),
  services,
  screen("/services/$id", () => import("../screens/service"), "Service"),
  screen("/connections", () => import("../screens/connections"), "Connections"),
  screen("/lan", () => import("../screens/lan"), "PeeringLan"),
  attack,
  billing,
  screen("/traffic", () => import("../screens/traffic"), "Traffic"),
  screen("/keys", () => import("../screens/keys"), "Keys"),
  screen("/approvals", () => import("../screens/approvals"), "Approvals"),
  screen("/filters", () => import("../screens/filters"), "Filters"),
  screen("/noc", () => import("../screens/noc"), "NocWall"),
  screen("/fabric", () => import("../screens/fabric"), "Fabric"),
  screen("/drift", () => import("../screens/drift"), "Drift"),
  screen("/changes", () => import("../screens/changes"), "Changes"),
  screen("/changes/$id", () => import("../screens/changes"), "Change"),
  screen("/notices", () => import("../screens/notices"), "Notices"),
  screen("/cross-connects", () => import("../screens/crossconnects"), "CrossConnects"),
  screen("/groups", () => import("../screens/groups"), "Groups"),
  screen("/policies", () => import("../screens/policies"), "Policies"),
  screen("/manrs", () => import("../screens/manrs"), "Manrs"),
  screen("/matrix", () => import("../screens/matrix"), "PeeringMatrix"),
  screen(PUBLIC[0], () => import("../screens/public"), "PublicStatus"),
  screen(PUBLIC[1], () => import("../screens/lookingglass"), "LookingGlass"),
  screen(PUBLIC[2], () => import("../screens/letter"), "VerifyLetter"),
  screen(PUBLIC[3], () => import("../screens/link"), "UseLink"),
  screen("/members", () => import("../screens/members"), "Members"),
  audit,
]);

export function newRouter(history?: RouterHistory) {
  return createRouter({
    routeTree: tree,
    defaultPreload: "intent",
    defaultErrorComponent: Broken,
    ...(history ? { history } : {}),
  });
}

declare module "@tanstack/react-router" {
  interface Register {
    router: ReturnType<typeof newRouter>;
  }
}
