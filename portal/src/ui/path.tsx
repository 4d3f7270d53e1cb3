import type { Hop } from "../api/types";
import { useText } from "../i18n/text";
import { State } from "./parts";

/**
 * The way of the frames as a row of hops. It is an ordered list that the style sheet draws as a line, so that the
 * drawing and the list for screen readers are one.
 */
export function PathDrawing({ hops }: { hops: Hop[] }) {
  const t = useText();
  return (
    <ol className="path" aria-label={t("path.label")}>
      {hops.map((hop, index) => (
        <li key={index} className="hop" data-kind={hop.kind} data-up={hop.up === null ? "unknown" : String(hop.up)}>
          <span className="hop-mark" aria-hidden="true" />
          <span className="hop-name">{hop.name}</span>
          <span className="hop-about">
            {hop.site ?? (hop.kind === "trunk" ? t("path.trunk") : null)}
            {hop.up === false ? (
              <>
                {" "}
                <State tone="bad">{t("state.down")}</State>
              </>
            ) : null}
          </span>
        </li>
      ))}
    </ol>
  );
}
