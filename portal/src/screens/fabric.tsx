import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";

import { secondPerson, staffOrder, useOrder } from "../api/orders";
import { inventory as inventoryQuery, observedTrunks, openChanges, switches as switchesQuery } from "../api/queries";
import type { Switch, Trunk } from "../api/types";
import { Age, Rate } from "../i18n/format";
import { useText, type Translate } from "../i18n/text";
import { AwaitsConfirmation } from "../ui/confirmation";
import { ConfirmedAct, useAsOpened } from "../ui/dialog";
import { Select, TextField } from "../ui/fields";
import { Graphs } from "../ui/graph";
import { InvalidField } from "../ui/invalid";
import { Loaded } from "../ui/loaded";
import { Empty, Notice, Panel, ScreenHead } from "../ui/parts";
import { Table } from "../ui/table";
import { StateOf } from "../ui/words";
import { DrainTrunk } from "./fabric.drain";
import { FabricMap, LoadBars, trunkState } from "./fabric.map";

/**
 * Returns the port numbers of a text, or undefined if it has something else: "1-3, 7" is [1, 2, 3, 7]. At most 512
 * ports.
 */
export function parsePorts(text: string): number[] | undefined {
  const numbers: number[] = [];
  for (const part of text.split(/[\s,;]+/).filter((one) => one !== "")) {
    const found = /^(\d{1,5})(?:[-–](\d{1,5}))?$/.exec(part);
    if (!found) return undefined;
    const [first, last] = [Number(found[1]), Number(found[2] ?? found[1])];
    if (first < 1 || last < first || last - first >= 512) return undefined;
    for (let number = first; number <= last; number += 1) numbers.push(number);
  }
  return numbers.length <= 512 ? [...new Set(numbers)] : undefined;
}

/** Returns the words for both directions of a trunk: its sites, or its switches if both are at one site. */
function directionsOf(t: Translate, trunk: Trunk) {
  const [one, two] = trunk.ends;
  const isWithin = one?.site === two?.site;
  const name = (end: Trunk["ends"][number] | undefined) => (isWithin ? end?.switch : end?.site) ?? "";
  const [from, to] = [name(one), name(two)];
  return { in: t("graph.forward", { from, to }), out: t("graph.forward", { from: to, to: from }) };
}

/** The fabric as a map and as tables; drains of trunks. */
export function Fabric() {
  const t = useText();
  const switches = useQuery(switchesQuery);
  const trunks = useQuery(observedTrunks);
  const unconfirmed = useQuery(openChanges).data?.filter((change) => change.confirm_until !== null) ?? [];
  const [waiting, setWaiting] = useState(false);
  return (
    <>
      <ScreenHead title={t("nav.fabric")} />
      <div className="stack">
        {waiting ? (
          <Notice tone="wait" title={t("fabric.needsSecond")} live>
            <Link to="/approvals">{t("nav.approvals")}</Link>
          </Notice>
        ) : null}
        {unconfirmed.map((change) => (
          <AwaitsConfirmation key={change.id} change={change} />
        ))}
        <Panel title={t("fabric.map")}>
          <Loaded
            query={switches}
            lines={5}
            empty={{
              when: (list) => list.length === 0,
              show: <Empty title={t("fabric.empty")}>{t("fabric.emptyAbout")}</Empty>,
            }}
          >
            {(list) => <FabricMap switches={list} trunks={trunks.data ?? []} />}
          </Loaded>
        </Panel>
        <Panel title={t("fabric.trunks")} flush>
          <Loaded
            fills="table"
            query={trunks}
            empty={{
              when: (list) => list.length === 0,
              show: <Empty title={t("fabric.noTrunks")}>{t("fabric.noTrunksAbout")}</Empty>,
            }}
          >
            {(list) => (
              <Table
                rows={list}
                keyOf={(trunk) => trunk.id}
                columns={[
                  { title: t("fabric.trunk"), cell: (trunk) => trunk.name },
                  { title: t("services.state"), cell: (trunk) => <StateOf state={trunkState(trunk)} /> },
                  { title: t("fabric.ends"), cell: (trunk) => trunk.ends.map((end) => end.id).join(" ⇄ ") },
                  {
                    title: t("fabric.contracted"),
                    isNumber: true,
                    cell: (trunk) => (
                      <span>
                        <Rate bits={trunk.contracted_mbps * 1e6} /> / <Rate bits={trunk.capacity_mbps * 1e6} />
                      </span>
                    ),
                  },
                  {
                    title: t("fabric.load"),
                    cell: (trunk) =>
                      trunk.load ? (
                        <LoadBars load={trunk.load} capacity={trunk.capacity_mbps} />
                      ) : (
                        <span className="quiet">{t("rate.unknown")}</span>
                      ),
                  },
                  { title: t("fabric.cost"), isNumber: true, cell: (trunk) => trunk.cost },
                  { title: t("nav.services"), isNumber: true, cell: (trunk) => trunk.services },
                  {
                    title: t("fabric.acts"),
                    isActs: true,
                    cell: (trunk) => (
                      <div className="buttons">
                        <DrainTrunk trunk={trunk} />
                        <DeleteTrunk trunk={trunk} onWaiting={() => setWaiting(true)} />
                      </div>
                    ),
                  },
                ]}
              />
            )}
          </Loaded>
        </Panel>
        <Panel title={t("graph.title")}>
          <div className="stack tight">
            <Graphs
              of={{ kind: "exchange" }}
              title={t("graph.exchange")}
              directions={{ in: t("graph.entered"), out: t("graph.left") }}
            />
            <Graphs
              of={{ kind: "sites" }}
              title={t("graph.roundTrips")}
              choose={t("graph.sites")}
              directions={{ in: "", out: "" }}
            />
            {(trunks.data ?? []).map((trunk) => (
              <Graphs
                key={trunk.id}
                of={{ kind: "trunks", id: trunk.id }}
                title={t("graph.trunk", { trunk: trunk.name })}
                directions={directionsOf(t, trunk)}
              />
            ))}
          </div>
        </Panel>
        <Panel title={t("fabric.switches")} flush>
          <Loaded
            fills="table"
            query={switches}
            empty={{
              when: (list) => list.length === 0,
              show: <Empty title={t("fabric.empty")}>{t("fabric.emptyAbout")}</Empty>,
            }}
          >
            {(list) => (
              <Table
                rows={list}
                keyOf={(entry) => entry.id}
                columns={[
                  { title: t("fabric.switch"), cell: (entry) => entry.name },
                  {
                    title: t("services.state"),
                    cell: (entry) => (
                      <span>
                        <StateOf state={entry.state} />
                        {entry.error ? <small className="quiet"> {entry.error}</small> : null}
                      </span>
                    ),
                  },
                  { title: t("service.site"), cell: (entry) => entry.site },
                  { title: t("fabric.dpid"), cell: (entry) => <code>{entry.dpid}</code> },
                  {
                    title: t("fabric.entries"),
                    isNumber: true,
                    cell: (entry) => entry.entries ?? t("state.unknown"),
                  },
                  {
                    title: t("fabric.ports"),
                    isNumber: true,
                    cell: (entry) => (
                      <>
                        {entry.ports_used} / {entry.ports}
                      </>
                    ),
                  },
                  { title: t("fabric.since"), cell: (entry) => (entry.since ? <Age at={entry.since} /> : null) },
                  {
                    title: t("fabric.acts"),
                    isActs: true,
                    cell: (entry) => (entry.can.includes("set_ports") ? <Ports entry={entry} /> : null),
                  },
                ]}
              />
            )}
          </Loaded>
        </Panel>
      </div>
    </>
  );
}

function DeleteTrunk({ trunk: live, onWaiting }: { trunk: Trunk; onWaiting: () => void }) {
  const t = useText();
  const [trunk, hold] = useAsOpened(live);
  const remove = useOrder(secondPerson.deleteTrunk);
  if (!trunk.can.includes("delete_fabric")) return null;
  return (
    <ConfirmedAct
      label={t("service.delete")}
      title={t("fabric.deleteTitle", { trunk: trunk.name })}
      sentence={t("fabric.deleteAbout")}
      kind="danger"
      hold={hold}
      act={() =>
        remove.mutateAsync([trunk.id, trunk.revision]).then((outcome) => {
          if (outcome.created.some((id) => id.startsWith("ap-"))) onWaiting();
        })
      }
    />
  );
}

/** The ports of a switch with what uses them, and the act that adds more to the inventory. */
function Ports({ entry }: { entry: Switch }) {
  const t = useText();
  const [numbers, setNumbers] = useState("");
  const [speed, setSpeed] = useState("10000");
  const [open, setOpen] = useState(false);
  const inventory = useQuery(inventoryQuery(entry.id, open));
  const set = useOrder(staffOrder.ports);
  const present = inventory.data ?? [];
  return (
    <ConfirmedAct
      label={t("fabric.addPorts")}
      title={t("fabric.addPortsTo", { name: entry.name })}
      sentence={t("fabric.addPortsAbout", { used: entry.ports_used, count: entry.ports })}
      onOpen={() => setNumbers("")}
      hold={setOpen}
      isUnready={inventory.data === undefined}
      act={() => {
        const wanted = parsePorts(numbers);
        if (wanted === undefined || wanted.length === 0)
          return Promise.reject(new InvalidField(t("fabric.portsWrong")));
        const kept = present.map(({ number, speed_mbps }) => ({ number, speed_mbps }));
        const added = wanted
          .filter((number) => !kept.some((port) => port.number === number))
          .map((number) => ({ number, speed_mbps: Number(speed) }));
        return set.mutateAsync([entry.id, entry.revision, [...kept, ...added]]);
      }}
    >
      <p className="quiet">
        {present
          .map((port) => (port.used_by === null ? String(port.number) : `${port.number} ${port.used_by}`))
          .join(", ")}
      </p>
      <TextField
        label={t("fabric.portNumbers")}
        hint={t("fabric.portNumbersHint")}
        value={numbers}
        onChange={setNumbers}
      />
      <Select
        label={t("connection.speed")}
        selectedKey={speed}
        onSelectionChange={(key) => setSpeed(String(key))}
        options={[1_000, 10_000, 25_000, 40_000, 100_000, 400_000].map((mbps) => ({
          id: String(mbps),
          name: `${mbps / 1_000} Gbit/s`,
        }))}
      />
    </ConfirmedAct>
  );
}
