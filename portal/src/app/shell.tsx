import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, Outlet, useNavigate, useRouterState } from "@tanstack/react-router";
import { createContext, useContext, useEffect, useMemo, useRef, useState } from "react";
import { Dialog, DialogTrigger, Heading, Modal, ModalOverlay } from "react-aria-components";

import { client, result, watchSession } from "../api/client";
import { LiveUpdates, useLive } from "../api/live";
import { RequestError } from "../api/problem";
import { overview, session } from "../api/queries";
import type { Whoami } from "../api/types";
import { useClock } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useLanguage, useText } from "../i18n/text";
import { formatAge } from "../i18n/units";
import { CALLBACK, SignIn, SignInForm, SignInReturn } from "../screens/signin";
import { forgetDrafts } from "../ui/draft";
import { Menu, Search, Warning } from "../ui/icons";
import { explain, Failure } from "../ui/loaded";
import { Button, Notice, Skeleton } from "../ui/parts";
import { Finder } from "./finder";
import { Preferences } from "./preferences";
import { Shortcuts, type Jump } from "./shortcuts";
import { useSingleKeys } from "./singlekeys";

const Me = createContext<Whoami | undefined>(undefined);

/** Returns who is signed in. Only screens inside the shell call it. */
export function useMe(): Whoami {
  const me = useContext(Me);
  if (!me) throw new Error("useMe is called outside of the shell");
  return me;
}

/**
 * Returns true for the exchange's staff. Parts that are shown outside of the shell, too, are shown as to members there.
 */
export function useIsStaff(): boolean {
  return useContext(Me)?.operator ?? false;
}

/** Gives screens who is signed in; the shell does, and tests of screens. */
export const SignedInAs = Me;

/** An entry of the navigation; `needs` is the operation that the user's roles must permit. */
type Entry = Jump & { count?: "tasks"; needs?: string };

const MEMBER: Entry[] = [
  { letter: "h", to: "/", name: "nav.home", count: "tasks" },
  { letter: "s", to: "/services", name: "nav.services" },
  { letter: "o", to: "/order", name: "nav.order", needs: "create_service" },
  { letter: "l", to: "/lan", name: "nav.lan" },
  { letter: "c", to: "/connections", name: "nav.connections" },
  { letter: "t", to: "/traffic", name: "nav.traffic", needs: "read_traffic" },
  { letter: "i", to: "/billing", name: "nav.billing", needs: "read_traffic" },
  { letter: "u", to: "/attack", name: "nav.attack", needs: "read_samples" },
  { letter: "f", to: "/filters", name: "nav.filters", needs: "read_filter" },
  { letter: "r", to: "/groups", name: "nav.groups", needs: "read_service" },
  { letter: "x", to: "/cross-connects", name: "nav.crossConnects", needs: "read_connection" },
  { letter: "e", to: "/matrix", name: "nav.matrix", needs: "read_traffic" },
  { letter: "n", to: "/notices", name: "nav.notices" },
  { letter: "k", to: "/keys", name: "nav.keys" },
];
const OPERATOR: Entry[] = [
  { letter: "w", to: "/noc", name: "nav.noc" },
  { letter: "b", to: "/fabric", name: "nav.fabric" },
  { letter: "d", to: "/drift", name: "nav.drift" },
  { letter: "j", to: "/changes", name: "nav.changes" },
  { letter: "p", to: "/approvals", name: "nav.approvals", needs: "approve" },
  { letter: "m", to: "/members", name: "nav.members" },
  { letter: "y", to: "/policies", name: "nav.policies" },
  { letter: "v", to: "/manrs", name: "nav.manrs" },
];
const AUDIT: Entry = { letter: "a", to: "/audit", name: "nav.audit" };
/** The entries of a regulator beside the audit: status, incidents and policies. */
const REGULATOR: Entry[] = [
  { letter: "s", to: "/status", name: "nav.status" },
  { letter: "n", to: "/notices", name: "nav.notices" },
  { letter: "p", to: "/policies", name: "nav.policies" },
];

/** Returns the entries of the navigation for a user, by group. */
export function navigation(me: Whoami): { title: MessageId; entries: Entry[] }[] {
  const groups: { title: MessageId; entries: Entry[] }[] = [];
  const permitted = (entry: Entry) => entry.needs === undefined || me.can.includes(entry.needs);
  const audit = me.can.includes("read_audit") ? [AUDIT] : [];
  if (me.roles.includes("regulator")) return [{ title: "nav.supervision", entries: [...audit, ...REGULATOR] }];
  if (me.operator) {
    groups.push({ title: "nav.exchange", entries: [...OPERATOR.filter(permitted), ...audit] });
    groups.push({
      title: "nav.all",
      entries: MEMBER.filter((entry) => entry.to !== "/order" && entry.to !== "/attack"),
    });
  } else {
    groups.push({ title: "nav.member", entries: [...MEMBER.filter(permitted), ...audit] });
  }
  return groups;
}

function Navigation({ me }: { me: Whoami }) {
  const t = useText();
  const tasks = useQuery({ ...overview, enabled: !me.roles.includes("regulator") }).data?.tasks.length ?? 0;
  return (
    <nav className="nav" aria-label={t("nav.label")}>
      <Link to="/" className="brand">
        <img src="/mark.svg" alt="" />
        <span>{me.exchange}</span>
      </Link>
      {navigation(me).map((group) => (
        <div key={group.title} className="nav-group">
          <div className="nav-title">{t(group.title)}</div>
          {group.entries.map((entry) => (
            <Link
              key={entry.to}
              to={entry.to}
              activeOptions={{ exact: entry.to === "/" }}
              activeProps={{ "aria-current": "page" }}
            >
              <span>{t(entry.name)}</span>
              {entry.count && tasks > 0 ? (
                <span className="count">
                  <span aria-hidden="true">{tasks}</span>
                  <span className="visually-hidden">{t("nav.tasks", { count: tasks })}</span>
                </span>
              ) : null}
            </Link>
          ))}
        </div>
      ))}
    </nav>
  );
}

/** The navigation on small screens. */
function Drawer({ me }: { me: Whoami }) {
  const t = useText();
  const [open, setOpen] = useState(false);
  const path = useRouterState({ select: (state) => state.location.pathname });
  useEffect(() => setOpen(false), [path]);
  return (
    <DialogTrigger isOpen={open} onOpenChange={setOpen}>
      <Button kind="quiet" className="menu-button" aria-label={t("nav.open")}>
        <Menu />
      </Button>
      <ModalOverlay className="veil" isDismissable>
        <Modal className="drawer">
          <Dialog aria-label={t("nav.label")}>
            <Navigation me={me} />
          </Dialog>
        </Modal>
      </ModalOverlay>
    </DialogTrigger>
  );
}

/**
 * Shows since when the data on screen may be out of date. A screen reader reads the sentence once, and not the age each
 * second.
 */
export function StaleBanner() {
  const t = useText();
  const live = useLive();
  const { language } = useLanguage();
  const now = useClock(1_000);
  // A reconnection within a few seconds is not worth a word.
  if (live.connected || now.getTime() - live.since < 4_000) return null;
  return (
    <div className="stale">
      <Warning />
      <span role="status">{t("live.lost")}</span>
      <span>{t("live.lostAt", { age: formatAge(new Date(live.since), now, language) })}</span>
    </div>
  );
}

/** The paths of pages that need no sign-in. */
export const PUBLIC = ["/status", "/looking-glass", "/letter", "/link"] as const;

/** The frame around every screen: navigation, search, who is signed in, and whether the data is live. */
export function Shell() {
  const path = useRouterState({ select: (state) => state.location.pathname });
  if ((PUBLIC as readonly string[]).includes(path)) return <Outlet />;
  return path === CALLBACK ? <SignInReturn /> : <SignedIn />;
}

/** Loads the page again, because all data that it has read are old or belong to another person. */
const reload = () => location.reload();

function SignedIn() {
  const query = useQuery({
    ...session,
    retry: (count, error) => error instanceof RequestError && error.isTransient && count < 2,
  });
  const [ended, setEnded] = useState(false);
  useEffect(() => watchSession(() => setEnded(true)), []);
  if (query.data === undefined) {
    if (query.error instanceof RequestError && query.error.status === 401) return <SignIn />;
    return (
      <main className="main">
        {query.isError ? <Failure error={query.error} retry={() => void query.refetch()} /> : <Skeleton lines={6} />}
      </main>
    );
  }
  return (
    <Me value={query.data}>
      <LiveUpdates user={query.data.user} onOther={reload}>
        <Frame me={query.data} />
      </LiveUpdates>
      {ended ? <SessionEnded name={query.data.name} onDone={() => setEnded(false)} /> : null}
    </Me>
  );
}

function Frame({ me }: { me: Whoami }) {
  const t = useText();
  const queries = useQueryClient();
  const main = useRef<HTMLElement>(null);
  const [searching, setSearching] = useState(false);
  const singleKeys = useSingleKeys();
  const path = useRouterState({ select: (state) => state.location.pathname });
  const first = useRef(true);
  useEffect(() => {
    // A new screen takes the focus, so that keyboard and screen reader begin at its title.
    if (first.current) first.current = false;
    else main.current?.focus({ preventScroll: true });
  }, [path]);
  const navigate = useNavigate();
  useEffect(() => {
    // Home is a member's screen: nothing of it concerns a regulator.
    if (path === "/" && me.roles.includes("regulator")) void navigate({ to: "/audit", replace: true });
  }, [path, me.roles, navigate]);
  const jumps = useMemo(() => navigation(me).flatMap((group) => group.entries), [me]);
  const [error, setError] = useState<unknown>();
  const signOut = () => {
    setError(undefined);
    const leave = () => {
      // Other people may use this browser.
      forgetDrafts("order ");
      queries.clear();
      // The browser may keep the page as it is, and show it by "back" before it loads again.
      document.body.hidden = true;
      location.assign("/");
    };
    result(client.DELETE("/api/v1/session")).then(leave, (reason: unknown) => {
      if (reason instanceof RequestError && reason.status === 401) leave();
      else setError(reason);
    });
  };
  return (
    <div className="shell">
      <a href="#main" className="button skip" data-kind="primary">
        {t("nav.skip")}
      </a>
      <Navigation me={me} />
      <div>
        <header className="top">
          <Drawer me={me} />
          <Button kind="quiet" onPress={() => setSearching(true)}>
            <Search />
            <span>{t("search.open")}</span>
            {singleKeys ? <kbd className="key">/</kbd> : null}
          </Button>
          <div className="who">
            <Preferences onSignOut={signOut} label={`${me.name} · ${me.account.name}`} />
          </div>
        </header>
        <StaleBanner />
        {error === undefined ? null : (
          <Notice tone="bad" title={t("session.stillIn", { reason: explain(t, error) })} live />
        )}
        <main className="main" id="main" tabIndex={-1} ref={main}>
          {me.roles.includes("regulator") ? <Notice tone="off" title={t("supervision.hidden")} /> : null}
          <Outlet />
        </main>
      </div>
      <Finder open={searching} onOpenChange={setSearching} />
      <Shortcuts jumps={jumps} onSearch={() => setSearching(true)} />
    </div>
  );
}

/** Asks to sign in again above the screen, so that what was typed is kept. */
function SessionEnded({ name, onDone }: { name: string; onDone: () => void }) {
  const t = useText();
  const queries = useQueryClient();
  return (
    <ModalOverlay className="veil" isOpen isKeyboardDismissDisabled>
      <Modal className="modal">
        <Dialog className="dialog">
          <Heading slot="title">{t("session.ended")}</Heading>
          <p>{t("session.endedAbout")}</p>
          <SignInForm
            name={name}
            onDone={() => {
              onDone();
              void queries.invalidateQueries();
            }}
          />
        </Dialog>
      </Modal>
    </ModalOverlay>
  );
}
