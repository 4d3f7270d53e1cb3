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
const route = <P extends string>(path: P, component: FunctionComponent) =>
  createRoute({ getParentRoute: () => root, path, component });

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
  route("/", Home),
  route(
    "/order",
    later(() => import("../screens/order"), "OrderPath"),
  ),
  services,
  route(
    "/services/$id",
    later(() => import("../screens/service"), "Service"),
  ),
  route(
    "/connections",
    later(() => import("../screens/connections"), "Connections"),
  ),
  route(
    "/lan",
    later(() => import("../screens/lan"), "PeeringLan"),
  ),
  attack,
  billing,
  route(
    "/traffic",
    later(() => import("../screens/traffic"), "Traffic"),
  ),
  route(
    "/keys",
    later(() => import("../screens/keys"), "Keys"),
  ),
  route(
    "/approvals",
    later(() => import("../screens/approvals"), "Approvals"),
  ),
  route(
    "/filters",
    later(() => import("../screens/filters"), "Filters"),
  ),
  route(
    "/noc",
    later(() => import("../screens/noc"), "NocWall"),
  ),
  route(
    "/fabric",
    later(() => import("../screens/fabric"), "Fabric"),
  ),
  route(
    "/changes",
    later(() => import("../screens/changes"), "Changes"),
  ),
  route(
    "/changes/$id",
    later(() => import("../screens/changes"), "Change"),
  ),
  route(
    "/notices",
    later(() => import("../screens/notices"), "Notices"),
  ),
  route(
    "/cross-connects",
    later(() => import("../screens/crossconnects"), "CrossConnects"),
  ),
  route(
    "/groups",
    later(() => import("../screens/groups"), "Groups"),
  ),
  route(
    "/policies",
    later(() => import("../screens/policies"), "Policies"),
  ),
  route(
    "/matrix",
    later(() => import("../screens/matrix"), "PeeringMatrix"),
  ),
  route(
    PUBLIC[0],
    later(() => import("../screens/public"), "PublicStatus"),
  ),
  route(
    PUBLIC[1],
    later(() => import("../screens/lookingglass"), "LookingGlass"),
  ),
  route(
    PUBLIC[2],
    later(() => import("../screens/letter"), "VerifyLetter"),
  ),
  route(
    PUBLIC[3],
    later(() => import("../screens/link"), "UseLink"),
  ),
  route(
    "/members",
    later(() => import("../screens/members"), "Members"),
  ),
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
