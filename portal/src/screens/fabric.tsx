import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { order, switches as switchesQuery, trunks as trunksQuery, useOrder } from "../api/queries";
import type { Ordered, Switch, Trunk } from "../api/types";
import { Age, Rate } from "../i18n/format";
import { useText } from "../i18n/text";
import { ConfirmedAct } from "../ui/dialog";
import { explain, Loaded } from "../ui/loaded";
import { Empty, Panel, ScreenHead, State } from "../ui/parts";
import { Planned } from "../ui/planned";
import { StateOf } from "../ui/words";

/** Returns the state of a trunk as one word. */
export function trunkState(trunk: Trunk): string {
  if (trunk.up === false) return "down";
  if (trunk.drained) return "drained";
  return trunk.up === null ? "unknown" : "up";
}

/** Sites with their switches, and the trunks between them: a drawing whose text is also its list. */
function FabricMap({ switches, trunks }: { switches: Switch[]; trunks: Trunk[] }) {
  const t = useText();
  const sites = [...new Set(switches.map((entry) => entry.site))];
  return (
    <div className="map">
      {sites.map((site) => (
        <section key={site} className="map-site" aria-label={site}>
          <h3>{site}</h3>
          <ul>
            {switches
              .filter((entry) => entry.site === site)
              .map((entry) => (
                <li key={entry.id} className="map-switch">
                  <span>{entry.name}</span>
                  <StateOf state={entry.state} />
                </li>
              ))}
          </ul>
        </section>
      ))}
      <ul className="map-trunks" aria-label={t("fabric.trunks")}>
        {trunks.map((trunk) => (
          <li key={trunk.id} data-state={trunkState(trunk)} data-carries={trunk.carries}>
            <span className="map-line" aria-hidden="true" />
            <span>
              {trunk.name} <span className="quiet">{trunk.ends.map((end) => end.site).join(" ⇄ ")}</span>
            </span>
            <StateOf state={trunkState(trunk)} />
            {trunk.carries ? <State tone="ok">{t("fabric.carries")}</State> : null}
          </li>
        ))}
      </ul>
    </div>
  );
}

function DrainTrunk({ trunk }: { trunk: Trunk }) {
  const t = useText();
  const drain = useOrder(order.drain);
  const [preview, setPreview] = useState<Ordered>();
  if (!trunk.can.includes("drain_trunk")) return null;
  return (
    <ConfirmedAct
      label={t(trunk.drained ? "fabric.undrain" : "fabric.drain")}
      title={t(trunk.drained ? "fabric.undrainTitle" : "fabric.drainTitle", { trunk: trunk.name })}
      sentence={t(trunk.drained ? "fabric.undrainAbout" : "fabric.drainAbout", { count: trunk.services })}
      explain={(error) => explain(t, error)}
      onOpen={() => {
        setPreview(undefined);
        order.drain(trunk.id, trunk.revision, !trunk.drained, true).then(setPreview, () => setPreview(undefined));
      }}
      act={() => drain.mutateAsync([trunk.id, trunk.revision, !trunk.drained])}
    >
      {preview ? <Planned outcome={preview} /> : null}
    </ConfirmedAct>
  );
}

/** The fabric as a map and as tables; drains of trunks. */
export function Fabric() {
  const t = useText();
  const switches = useQuery(switchesQuery);
  const trunks = useQuery(trunksQuery);
  return (
    <>
      <ScreenHead title={t("nav.fabric")} />
      <div className="stack">
        <Panel title={t("fabric.map")}>
          <Loaded query={switches} lines={5} empty={{ when: (list) => list.length === 0, show: <Empty title={t("fabric.empty")}>{t("fabric.emptyAbout")}</Empty> }}>
            {(list) => <FabricMap switches={list} trunks={trunks.data ?? []} />}
          </Loaded>
        </Panel>
        <Panel title={t("fabric.trunks")} flush>
          <div className={trunks.data && trunks.data.length > 0 ? "table-wrap" : "panel-body"}>
            <Loaded query={trunks} empty={{ when: (list) => list.length === 0, show: <Empty title={t("fabric.noTrunks")}>{t("fabric.noTrunksAbout")}</Empty> }}>
              {(list) => (
                <table className="table cards">
                  <thead>
                    <tr>
                      <th scope="col">{t("fabric.trunk")}</th>
                      <th scope="col">{t("services.state")}</th>
                      <th scope="col">{t("fabric.ends")}</th>
                      <th scope="col" className="number">{t("fabric.contracted")}</th>
                      <th scope="col" className="number">{t("fabric.cost")}</th>
                      <th scope="col">{t("fabric.since")}</th>
                      <th scope="col">
                        <span className="visually-hidden">{t("fabric.acts")}</span>
                      </th>
                    </tr>
                  </thead>
                  <tbody>
                    {list.map((trunk) => (
                      <tr key={trunk.id}>
                        <th scope="row">{trunk.name}</th>
                        <td data-label={t("services.state")}>
                          <StateOf state={trunkState(trunk)} />
                        </td>
                        <td data-label={t("fabric.ends")}>{trunk.ends.map((end) => end.id).join(" ⇄ ")}</td>
                        <td className="number" data-label={t("fabric.contracted")}>
                          <span>
                            <Rate bits={trunk.contracted_mbps * 1e6} /> / <Rate bits={trunk.capacity_mbps * 1e6} />
                          </span>
                        </td>
                        <td className="number" data-label={t("fabric.cost")}>{trunk.cost}</td>
                        <td data-label={t("fabric.since")}>{trunk.since ? <Age at={trunk.since} /> : null}</td>
                        <td>
                          <DrainTrunk trunk={trunk} />
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              )}
            </Loaded>
          </div>
        </Panel>
        <Panel title={t("fabric.switches")} flush>
          <div className={switches.data && switches.data.length > 0 ? "table-wrap" : "panel-body"}>
            <Loaded query={switches} empty={{ when: (list) => list.length === 0, show: <Empty title={t("fabric.empty")}>{t("fabric.emptyAbout")}</Empty> }}>
              {(list) => (
                <table className="table cards">
                  <thead>
                    <tr>
                      <th scope="col">{t("fabric.switch")}</th>
                      <th scope="col">{t("services.state")}</th>
                      <th scope="col">{t("service.site")}</th>
                      <th scope="col">{t("fabric.dpid")}</th>
                      <th scope="col" className="number">{t("fabric.entries")}</th>
                      <th scope="col" className="number">{t("fabric.ports")}</th>
                      <th scope="col">{t("fabric.since")}</th>
                    </tr>
                  </thead>
                  <tbody>
                    {list.map((entry) => (
                      <tr key={entry.id}>
                        <th scope="row">{entry.name}</th>
                        <td data-label={t("services.state")}>
                          <span>
                            <StateOf state={entry.state} />
                            {entry.error ? <small className="quiet"> {entry.error}</small> : null}
                          </span>
                        </td>
                        <td data-label={t("service.site")}>{entry.site}</td>
                        <td data-label={t("fabric.dpid")}>
                          <code>{entry.dpid}</code>
                        </td>
                        <td className="number" data-label={t("fabric.entries")}>{entry.entries}</td>
                        <td className="number" data-label={t("fabric.ports")}>
                          {entry.ports_used} / {entry.ports}
                        </td>
                        <td data-label={t("fabric.since")}>{entry.since ? <Age at={entry.since} /> : null}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              )}
            </Loaded>
          </div>
        </Panel>
      </div>
    </>
  );
}
