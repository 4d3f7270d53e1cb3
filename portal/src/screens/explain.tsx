import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { explanation as explanationQuery, type Packet } from "../api/queries";
import type { Explanation } from "../api/types";
import type { MessageId } from "../i18n/messages";
import { protocolName } from "../i18n/protocols";
import { useText, type Translate } from "../i18n/text";
import { Form, Select, TextField } from "../ui/fields";
import { Ident } from "../ui/ident";
import { Loaded } from "../ui/loaded";
import { Button, Notice, Panel, State } from "../ui/parts";
import { wordOf } from "../ui/words";

const OUTCOMES: Record<string, MessageId> = {
  pass: "explain.pass",
  drop: "explain.drop",
  shape: "explain.shape",
  count: "explain.count",
};

/** The protocols that can be asked for: UDP, TCP, ICMP and ICMPv6. */
const PROTOCOLS = [17, 6, 1, 58];

/** Returns a packet as a line, such as "UDP *:53 → 203.0.113.7". */
function packetText(t: Translate, { protocol, source, source_port, destination, destination_port }: Packet): string {
  const name = protocol === undefined ? "" : protocolName(t, protocol);
  const end = (address: string, port: number | undefined) =>
    port === undefined ? address : `${address.includes(":") ? `[${address}]` : address}:${port}`;
  return `${name} ${end(source ?? "*", source_port)} → ${end(destination, destination_port)}`;
}

/** Returns the port of a text: null for an empty one, undefined for one that is no port. */
export function parsePort(text: string): number | null | undefined {
  const trimmed = text.trim();
  if (trimmed === "") return null;
  return /^\d{1,5}$/.test(trimmed) && Number(trimmed) <= 65_535 ? Number(trimmed) : undefined;
}

/** Asks what happens to a packet, and shows every filter that was compared. */
export function ExplainPacket() {
  const t = useText();
  const [destination, setDestination] = useState("");
  const [source, setSource] = useState("");
  const [protocol, setProtocol] = useState(17);
  const [sourcePort, setSourcePort] = useState("");
  const [destinationPort, setDestinationPort] = useState("");
  const [asked, setAsked] = useState<Packet>();
  const [errors, setErrors] = useState<{ destination?: string; from?: string; to?: string }>({});
  const query = useQuery(explanationQuery(asked));
  const hasPorts = protocol === 17 || protocol === 6;
  const submit = () => {
    const [from, to] = hasPorts ? [parsePort(sourcePort), parsePort(destinationPort)] : [null, null];
    const wrong = {
      ...(destination.trim() === "" ? { destination: t("filterForm.destinationMissing") } : {}),
      ...(from === undefined ? { from: t("explain.portWrong") } : {}),
      ...(to === undefined ? { to: t("explain.portWrong") } : {}),
    };
    setErrors(wrong);
    if (from === undefined || to === undefined || destination.trim() === "") {
      // An answer about another packet would stand below these values.
      setAsked(undefined);
      return;
    }
    setAsked({
      destination: destination.trim(),
      ...(source.trim() === "" ? {} : { source: source.trim() }),
      protocol,
      ...(from === null ? {} : { source_port: from }),
      ...(to === null ? {} : { destination_port: to }),
    });
  };
  return (
    <Panel title={t("explain.title")}>
      <div className="stack">
        <Form onSubmit={submit} label={t("explain.title")}>
          <div className="fields">
            <TextField
              label={t("explain.to")}
              value={destination}
              onChange={setDestination}
              error={errors.destination}
              inputProps={{ spellCheck: false, autoCapitalize: "none", placeholder: "203.0.113.7" }}
            />
            <TextField
              label={t("explain.from")}
              value={source}
              onChange={setSource}
              inputProps={{ spellCheck: false, autoCapitalize: "none" }}
            />
            <Select
              label={t("filterForm.protocol")}
              options={PROTOCOLS.map((number) => ({ id: String(number), name: protocolName(t, number) }))}
              value={String(protocol)}
              onChange={(key) => setProtocol(Number(key))}
            />
            {hasPorts ? (
              <>
                <TextField
                  label={t("explain.portFrom")}
                  value={sourcePort}
                  onChange={setSourcePort}
                  error={errors.from}
                  inputProps={{ inputMode: "numeric" }}
                />
                <TextField
                  label={t("explain.portTo")}
                  value={destinationPort}
                  onChange={setDestinationPort}
                  error={errors.to}
                  inputProps={{ inputMode: "numeric" }}
                />
              </>
            ) : null}
            <Button type="submit">{t("explain.ask")}</Button>
          </div>
        </Form>
        {asked ? (
          <>
            <p>
              {t("explain.asked")} <code>{packetText(t, asked)}</code>
            </p>
            <Loaded query={query} lines={3}>
              {(found) => <Explained found={found} />}
            </Loaded>
          </>
        ) : null}
      </div>
    </Panel>
  );
}

function Explained({ found }: { found: Explanation }) {
  const t = useText();
  const applied = found.steps.find((step) => step.applies);
  return (
    <div className="stack tight">
      <Notice
        tone={found.outcome === "drop" ? "bad" : found.outcome === "pass" ? "ok" : "wait"}
        title={wordOf(t, OUTCOMES, found.outcome)}
        live
      >
        {applied ? (
          <p>
            {t("explain.by")} <code>{applied.filter.matching}</code> <Ident id={applied.filter.id} />
          </p>
        ) : (
          <p>{t("explain.byNone")}</p>
        )}
      </Notice>
      <ol className="stack tight">
        {found.steps.map((step) => (
          <li key={step.filter.id} className="row">
            <State tone={step.applies ? "bad" : step.matches ? "wait" : "off"}>
              {t(step.applies ? "explain.applies" : step.matches ? "explain.matches" : "explain.other")}
            </State>
            <code>{step.filter.matching}</code>
            <span className="quiet">{t.reason(step.coded, step.why)}</span>
          </li>
        ))}
      </ol>
    </div>
  );
}
