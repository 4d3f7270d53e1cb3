import { Fragment } from "react";

import type { Load, Switch, Trunk } from "../api/types";
import { useLanguage, useText } from "../i18n/text";
import { formatBitRate } from "../i18n/units";
import { State } from "../ui/parts";
import { StateOf } from "../ui/words";

/** Returns the state of a trunk as one word. */
export function trunkState(trunk: Trunk): string {
  if (trunk.up === false) return "down";
  if (trunk.drained) return "drained";
  return trunk.up === null ? "unknown" : "up";
}

/**
 * Sites with their switches side by side, the trunks of two neighbours between them: a drawing whose text is also its
 * list.
 */
export function FabricMap({ switches, trunks }: { switches: Switch[]; trunks: Trunk[] }) {
  const t = useText();
  const sites = [...new Set(switches.map((entry) => entry.site))];
  const joins = (trunk: Trunk, a: string | undefined, b: string | undefined) => {
    const ends = trunk.ends.map((end) => end.site);
    return (
      a !== undefined && b !== undefined && ends.includes(a) && ends.includes(b) && (a !== b || ends[0] === ends[1])
    );
  };
  const drawn = new Set(sites.flatMap((site, index) => trunks.filter((trunk) => joins(trunk, site, sites[index + 1]))));
  const others = trunks.filter((trunk) => !drawn.has(trunk));
  return (
    <div className="stack">
      <div className="fabric" role="group" aria-label={t("fabric.map")} tabIndex={0}>
        {sites.map((site, index) => (
          <Fragment key={site}>
            <section className="map-site" aria-label={site}>
              <h3>{site}</h3>
              <ul className="stack tight">
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
            {index + 1 < sites.length ? (
              <TrunkLines trunks={trunks.filter((trunk) => joins(trunk, site, sites[index + 1]))} />
            ) : null}
          </Fragment>
        ))}
      </div>
      {others.length > 0 ? <TrunkLines trunks={others} between /> : null}
    </div>
  );
}

function TrunkLines({ trunks, between = false }: { trunks: Trunk[]; between?: boolean }) {
  const t = useText();
  return (
    <ul className="map-trunks" aria-label={t("fabric.trunks")}>
      {trunks.map((trunk) => (
        <li key={trunk.id} data-state={trunkState(trunk)} data-carries={trunk.carries}>
          <span className="map-about">
            <strong>{trunk.name}</strong>
            {between ? <span className="quiet">{trunk.ends.map((end) => end.site).join(" ⇄ ")}</span> : null}
            <StateOf state={trunkState(trunk)} />
          </span>
          <span className="map-line" aria-hidden="true" />
          <span className="map-about">{trunk.carries ? <State tone="ok">{t("fabric.carries")}</State> : null}</span>
        </li>
      ))}
    </ul>
  );
}

/** The present rates of a trunk beside its capacity, as bars with numbers. */
export function LoadBars({ load, capacity }: { load: Load; capacity: number }) {
  const t = useText();
  const { language } = useLanguage();
  const rows: [string, number][] = [
    ["→", load.in_bps],
    ["←", load.out_bps],
  ];
  return (
    <span className="loads">
      {rows.map(([sign, bits]) => (
        <span key={sign} className="load">
          <span aria-hidden="true">{sign}</span>
          <meter
            min={0}
            max={1}
            high={0.8}
            value={Math.min(1, bits / (capacity * 1e6))}
            aria-label={t("fabric.load")}
          />
          <span>{formatBitRate(bits, language)}</span>
        </span>
      ))}
    </span>
  );
}
