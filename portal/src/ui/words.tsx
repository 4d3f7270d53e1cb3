// The engine's words for states, and their words on the page.

import type { Status } from "../api/types";
import type { MessageId } from "../i18n/messages";
import { useText, type Translate } from "../i18n/text";
import { State, type Tone } from "./parts";

const TONES: Record<string, Tone> = {
  requested: "wait",
  allocated: "wait",
  testing: "wait",
  production: "ok",
  production_change_pending: "wait",
  decommission_requested: "wait",
  decommissioned: "off",
  archived: "off",
  error: "bad",
  operator: "wait",
  scheduled: "wait",
  cancelled: "off",
  up: "ok",
  degraded: "wait",
  down: "bad",
  unknown: "off",
  in_sync: "ok",
  syncing: "wait",
  drifted: "bad",
  unreachable: "bad",
  drained: "off",
  accepted: "wait",
  planned: "wait",
  staged: "wait",
  flipped: "wait",
  cleaned: "ok",
  rolled_back: "bad",
  draft: "off",
  checked: "wait",
  active: "ok",
  expired: "off",
  refused: "bad",
  suspended: "wait",
};

const WORDS: Record<string, MessageId> = {
  requested: "state.requested",
  allocated: "state.allocated",
  testing: "state.testing",
  production: "state.production",
  production_change_pending: "state.changePending",
  decommission_requested: "state.decommissionRequested",
  decommissioned: "state.decommissioned",
  archived: "state.archived",
  error: "state.error",
  operator: "state.operator",
  scheduled: "state.scheduled",
  cancelled: "state.cancelled",
  up: "state.up",
  degraded: "state.degraded",
  down: "state.down",
  unknown: "state.unknown",
  in_sync: "state.inSync",
  syncing: "state.syncing",
  drifted: "state.drifted",
  unreachable: "state.unreachable",
  drained: "state.drained",
  accepted: "state.accepted",
  planned: "state.planned",
  staged: "state.staged",
  flipped: "state.flipped",
  cleaned: "state.cleaned",
  rolled_back: "state.rolledBack",
  draft: "state.draft",
  checked: "state.checked",
  active: "state.active",
  expired: "state.expired",
  refused: "state.refused",
  suspended: "state.suspended",
};

/** Returns the page's word for one of the engine, or the engine's own word, which a newer engine may have. */
export function wordOf(t: Translate, words: Record<string, MessageId>, engineWord: string): string {
  const known = words[engineWord];
  return known ? t(known) : engineWord;
}

export function stateWord(t: Translate, state: string): string {
  return wordOf(t, WORDS, state);
}

export function stateTone(state: string): Tone {
  return TONES[state] ?? "off";
}

/** A state of any object, with its shape and colour. */
export function StateOf({ state, tone }: { state: string; tone?: Tone }) {
  const t = useText();
  return <State tone={tone ?? stateTone(state)}>{stateWord(t, state)}</State>;
}

const STATUS: Record<string, MessageId> = {
  waiting_for_peer: "status.waitingForPeer",
  refused: "status.refused",
  planned: "status.planned",
  installing: "status.installing",
  removing: "status.removing",
  missing: "status.missing",
  cancelled: "status.cancelled",
  operator: "status.operator",
  scheduled: "status.scheduled",
  failed: "status.failed",
};

/** Returns a fact about a state in the reader's language; facts with details come from their codes. */
export function statusText(t: Translate, status: Status, can: readonly string[] = []): string {
  if (status.tag === "waiting_for_peer" && can.includes("accept")) return t("status.waitingForYou");
  const known = STATUS[status.tag];
  return known ? t(known) : t.reason(status.coded, status.message);
}

const KINDS: Record<string, MessageId> = {
  p2p_vc: "kind.p2p",
  p2mp_vc: "kind.p2mp",
  mp2mp_vc: "kind.mp2mp",
  exchange_lan: "kind.lan",
};

export function kindWord(t: Translate, kind: string): string {
  return wordOf(t, KINDS, kind);
}

const ROLES: Record<string, MessageId> = {
  member_admin: "role.memberAdmin",
  member_tech: "role.memberTech",
  member_noc: "role.memberNoc",
  member_billing: "role.memberBilling",
  reseller: "role.reseller",
  operator_noc: "role.operatorNoc",
  operator_provisioning: "role.operatorProvisioning",
  operator_admin: "role.operatorAdmin",
  regulator: "role.regulator",
  api_client: "role.apiClient",
};

export function roleWord(t: Translate, role: string): string {
  return wordOf(t, ROLES, role);
}
