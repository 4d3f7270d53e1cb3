import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, useRef, useState } from "react";

import { idempotencyKey } from "../api/client";
import { order, useOrder } from "../api/orders";
import { RequestError } from "../api/problem";
import { accounts as accountsQuery, connections as connectionsQuery } from "../api/queries";
import type { Account, Hop, Ordered } from "../api/types";
import { useMe } from "../app/shell";
import { useText, type Translate } from "../i18n/text";
import { useDraft } from "../ui/draft";
import {
  checkEnd,
  EMPTY_END,
  EndFields,
  endOrder,
  isVid,
  parseRate,
  vlanOf,
  type EndDraft,
  type EndErrors,
} from "../ui/endfields";
import { Choices, ComboBox, Form, TextField } from "../ui/fields";
import { explain } from "../ui/loaded";
import { Button, Notice, Panel, ScreenHead } from "../ui/parts";
import { PathDrawing } from "../ui/path";
import { Planned } from "../ui/planned";
import { RouterConfig } from "../ui/routerconfig";
import { ErrorSummary, type FieldProblem } from "../ui/summary";

type OrderDraft = {
  to: "member" | "key" | "own" | "holder";
  peer: string;
  peerText: string;
  secret: string;
  name: string;
  end: EndDraft;
  far: EndDraft;
};

const EMPTY: OrderDraft = {
  to: "member",
  peer: "",
  peerText: "",
  secret: "",
  name: "",
  end: EMPTY_END,
  far: EMPTY_END,
};

/** A service key is a secret of its maker, and is not kept. */
const stored = ({ to, peer, peerText, name, end, far }: OrderDraft) => ({ to, peer, peerText, name, end, far });

type Errors = { peer?: string; secret?: string; name?: string; end: EndErrors; far: EndErrors };

/** The fields of the engine's answer, and their fields on this screen. */
const POINTERS: [RegExp, string][] = [
  [/^\/peer/, "order-peer"],
  [/^\/secret/, "order-secret"],
  [/^\/name/, "order-name"],
  [/^\/far_end\/(vlan|connection|capacity_mbps)/, "far-"],
  [/^\/end\/(vlan|connection|capacity_mbps)/, "end-"],
];

function check(t: Translate, draft: OrderDraft): Errors {
  return {
    ...(draft.to === "member" && draft.peer === "" ? { peer: t("order.peerMissing") } : {}),
    ...(draft.to === "key" && draft.secret.trim() === "" ? { secret: t("order.keyMissing") } : {}),
    ...(draft.to !== "key" && draft.name.trim() === "" ? { name: t("order.nameMissing") } : {}),
    end: checkEnd(t, draft.end),
    far: draft.to === "own" ? checkEnd(t, draft.far) : {},
  };
}

/** Returns the engine's refusal at the fields that it names. */
export function problemsOf(t: Translate, error: unknown): FieldProblem[] {
  if (!(error instanceof RequestError) || !error.problem) return [];
  return (error.problem.errors ?? []).map((value) => {
    for (const [pattern, field] of POINTERS) {
      const found = pattern.exec(value.pointer);
      if (found) {
        const part = found[1] === "capacity_mbps" ? "rate" : (found[1] ?? "");
        return { field: field.endsWith("-") ? field + part : field, message: t.reason(value.coded, value.detail) };
      }
    }
    return { field: "order-form", message: explain(t, error) };
  });
}

/** Returns the words by which a member is found, in lower case. */
function memberWords({ name, asns }: Account): string {
  return `${name} ${asns.map((asn) => `AS${asn}`).join(" ")}`.toLowerCase();
}

/** Returns the path as far as the draft specifies it. */
function sketch(
  t: Translate,
  draft: OrderDraft,
  connections: { id: string; name: string; site: string }[],
  peer: string | undefined,
): Hop[] {
  const near = connections.find((connection) => connection.id === draft.end.connection);
  const far = connections.find((connection) => connection.id === draft.far.connection);
  const vlan = (end: EndDraft) =>
    end.tagging === "port"
      ? ""
      : end.vlan === ""
        ? ""
        : ` · VLAN ${end.vlan}${end.tagging === "qinq" && end.inner !== "" ? `.${end.inner}` : ""}`;
  const farHop: Hop =
    draft.to === "own"
      ? { kind: "port", name: far ? far.name + vlan(draft.far) : t("order.farEnd"), site: far?.site ?? null, up: null }
      : {
          kind: "port",
          name:
            draft.to === "key"
              ? t("order.keyHolder")
              : draft.to === "holder"
                ? t("order.toHolder")
                : (peer ?? t("order.peer")),
          site: t("order.peerChooses"),
          up: null,
        };
  return [
    { kind: "port", name: near ? near.name + vlan(draft.end) : t("order.myEnd"), site: near?.site ?? null, up: null },
    { kind: "switch", name: t("order.fabric"), site: null, up: null },
    farHop,
  ];
}

/** Orders a path: to whom, my end, the name. The right side shows the effect of the order. */
export function OrderPath() {
  const t = useText();
  const me = useMe();
  const navigate = useNavigate();
  const [draft, setDraft, clear] = useDraft(`order ${me.user}`, EMPTY, stored);
  const [attempt, setAttempt] = useState(0);
  const [preview, setPreview] = useState<{ outcome: Ordered; of: string }>();
  const [checked, setChecked] = useState(false);
  // One key for each draft: a request that is sent twice, or again after a lost connection, is one order.
  const key = useRef(idempotencyKey());
  const accounts = useQuery(accountsQuery);
  const connections = useQuery(connectionsQuery);
  const others = useMemo(
    () =>
      (accounts.data ?? []).filter(
        (account) => account.id !== me.account.id && account.kind !== "exchange" && account.kind !== "authority",
      ),
    [accounts.data, me.account.id],
  );
  const found = useMemo(
    () => others.filter((account) => memberWords(account).includes(draft.peerText.trim().toLowerCase())),
    [others, draft.peerText],
  );
  const send = (dryRun: boolean) => {
    const end = endOrder(draft.end);
    if (draft.to === "key")
      return order.redeem({ secret: draft.secret.trim(), end }, dryRun, dryRun ? idempotencyKey() : key.current);
    const body = {
      name: draft.name.trim(),
      peer: draft.to === "member" ? draft.peer : null,
      end,
      far_end: draft.to === "own" ? endOrder(draft.far) : null,
    };
    return order.path(body, dryRun, dryRun ? idempotencyKey() : key.current);
  };
  const ordering = useOrder((dryRun: boolean) => send(dryRun));
  const errors = checked ? check(t, draft) : { end: {}, far: {} };
  const refused = problemsOf(t, ordering.error);
  const at = (field: string, own: string | undefined) =>
    own ?? refused.find((problem) => problem.field === field)?.message;
  const endErrors = (prefix: "end" | "far", own: EndErrors): EndErrors => ({
    connection: at(`${prefix}-connection`, own.connection),
    vlan: at(`${prefix}-vlan`, own.vlan),
    inner: own.inner,
    rate: at(`${prefix}-rate`, own.rate),
  });
  const problems: FieldProblem[] = [
    ...(errors.peer ? [{ field: "order-peer", message: errors.peer }] : []),
    ...(errors.secret ? [{ field: "order-secret", message: errors.secret }] : []),
    ...Object.entries(errors.end).map(([field, message]) => ({ field: `end-${field}`, message })),
    ...Object.entries(errors.far).map(([field, message]) => ({ field: `far-${field}`, message })),
    ...(errors.name ? [{ field: "order-name", message: errors.name }] : []),
    ...refused,
  ];
  const change = (next: Partial<OrderDraft>) => {
    setDraft({ ...draft, ...next });
    ordering.reset();
    key.current = idempotencyKey();
  };
  const submit = (dryRun: boolean) => {
    setChecked(true);
    setAttempt(attempt + 1);
    const found = check(t, draft);
    if (
      found.peer ||
      found.secret ||
      found.name ||
      Object.keys(found.end).length > 0 ||
      Object.keys(found.far).length > 0
    )
      return;
    ordering.mutate([dryRun], {
      onSuccess: (outcome) => {
        if (dryRun) {
          setPreview({ outcome, of: JSON.stringify(draft) });
          return;
        }
        clear();
        const service = [...outcome.created, ...outcome.changed].find((id) => id.startsWith("sv-"));
        if (service) void navigate({ to: "/services/$id", params: { id: service } });
        else void navigate({ to: "/services", search: { q: "", state: "" } });
      },
      onError: () => setAttempt((before) => before + 1),
    });
  };
  const current = preview && preview.of === JSON.stringify(draft) ? preview.outcome : undefined;
  return (
    <>
      <ScreenHead title={t("nav.order")} below={t("order.about")} />
      <div className="two">
        <Form onSubmit={() => submit(false)} pending={ordering.isPending} label={t("nav.order")}>
          <ErrorSummary problems={problems} attempt={attempt} />
          {ordering.error && refused.length === 0 ? (
            <Notice tone="bad" title={explain(t, ordering.error)} live />
          ) : null}
          <Panel title={t("order.toWhom")}>
            <div className="stack">
              <Choices
                label={t("order.to")}
                value={draft.to}
                onChange={(to) => change({ to })}
                options={[
                  { id: "member", name: t("order.toMember"), hint: t("order.toMemberAbout") },
                  { id: "holder", name: t("order.toHolder"), hint: t("order.toHolderAbout") },
                  { id: "key", name: t("order.toKey"), hint: t("order.toKeyAbout") },
                  { id: "own", name: t("order.toOwn"), hint: t("order.toOwnAbout") },
                ]}
              />
              {draft.to === "member" ? (
                <ComboBox
                  id="order-peer"
                  label={t("order.peer")}
                  hint={t("order.peerAbout")}
                  options={found.map((account) => ({
                    id: account.id,
                    name: account.name,
                    hint: account.asns.map((asn) => `AS${asn}`).join(", "),
                  }))}
                  value={draft.peer === "" ? null : draft.peer}
                  inputValue={draft.peerText}
                  onInputChange={(peerText) => change({ peerText, peer: "" })}
                  onChange={(chosen) => {
                    // Without a chosen member the field reports null when the focus leaves it: a text that names no
                    // member is removed.
                    const typed = draft.peerText.trim();
                    const isTyped = ({ name, asns }: Account) =>
                      name === typed || asns.some((asn) => `AS${asn}` === typed.toUpperCase());
                    const account = others.find((account) =>
                      chosen === null ? isTyped(account) : account.id === chosen,
                    );
                    if (account) change({ peer: account.id, peerText: account.name });
                    else if (chosen === null && !accounts.isPending) change({ peer: "", peerText: "" });
                  }}
                  empty={t(accounts.isPending ? "load.loading" : "order.noPeer")}
                  error={at("order-peer", errors.peer)}
                />
              ) : null}
              {draft.to === "key" ? (
                <TextField
                  id="order-secret"
                  label={t("order.key")}
                  hint={t("order.keyAbout")}
                  value={draft.secret}
                  onChange={(secret) => change({ secret })}
                  error={at("order-secret", errors.secret)}
                  inputProps={{ spellCheck: false, autoComplete: "off" }}
                />
              ) : null}
            </div>
          </Panel>
          <Panel title={t("order.myEnd")}>
            <div className="stack">
              <EndFields
                prefix="end"
                value={draft.end}
                onChange={(end) => change({ end })}
                errors={endErrors("end", errors.end)}
                account={me.operator ? undefined : me.account.id}
              />
            </div>
          </Panel>
          {draft.to === "own" ? (
            <Panel title={t("order.farEnd")}>
              <div className="stack">
                <EndFields
                  prefix="far"
                  value={draft.far}
                  onChange={(far) => change({ far })}
                  errors={endErrors("far", errors.far)}
                  account={me.operator ? undefined : me.account.id}
                />
              </div>
            </Panel>
          ) : null}
          {draft.to === "key" ? null : (
            <Panel title={t("order.name")}>
              <TextField
                id="order-name"
                label={t("order.nameLabel")}
                hint={t("order.nameAbout")}
                value={draft.name}
                onChange={(name) => change({ name })}
                error={at("order-name", errors.name)}
              />
            </Panel>
          )}
          <div className="buttons">
            <Button type="submit" kind="primary" isPending={ordering.isPending}>
              {t("order.submit")}
            </Button>
            <Button onPress={() => submit(true)} isDisabled={ordering.isPending}>
              {t("order.dryRun")}
            </Button>
            <Button
              kind="quiet"
              onPress={() => {
                clear();
                setChecked(false);
                ordering.reset();
              }}
            >
              {t("order.clear")}
            </Button>
          </div>
          <p className="hint">{t("order.kept")}</p>
        </Form>
        <aside className="stack aside" aria-label={t("order.result")}>
          <Panel title={t("order.path")}>
            <PathDrawing
              hops={sketch(t, draft, connections.data ?? [], others.find((account) => account.id === draft.peer)?.name)}
            />
          </Panel>
          {current ? <Planned outcome={current} /> : null}
          {draft.end.connection === "" ? null : <MyRouter title={t("router.mine")} end={draft.end} name={draft.name} />}
          {draft.to !== "own" || draft.far.connection === "" ? null : (
            <MyRouter title={t("router.far")} end={draft.far} name={draft.name} />
          )}
          <Panel title={t("order.next")}>
            <ol className="numbered">
              <li>
                {t(
                  draft.to === "member"
                    ? "order.nextMember"
                    : draft.to === "holder"
                      ? "order.nextHolder"
                      : "order.nextOwn",
                )}
              </li>
              <li>{t("order.nextInstall")}</li>
              <li>{t("order.nextFrames")}</li>
            </ol>
          </Panel>
        </aside>
      </div>
    </>
  );
}

/** The configuration of the router behind an end that is being typed. */
function MyRouter({ title, end, name }: { title: string; end: EndDraft; name: string }) {
  if (!isVid(end.vlan) || !isVid(end.inner)) return null;
  return (
    <Panel title={title}>
      <RouterConfig
        end={{ vlan: vlanOf(end), about: name, rateMbps: parseRate(end.rate) ?? null, addresses: [], lan: false }}
      />
    </Panel>
  );
}
