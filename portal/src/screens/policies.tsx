import { useQuery } from "@tanstack/react-query";

import { policies as policiesQuery } from "../api/queries";
import { useText } from "../i18n/text";
import { Loaded } from "../ui/loaded";
import { Empty, Facts, Panel, ScreenHead } from "../ui/parts";

/** The rules of the exchange's peering LANs. */
export function Policies() {
  const t = useText();
  const query = useQuery(policiesQuery);
  return (
    <>
      <ScreenHead title={t("nav.policies")} below={t("policy.about")} />
      <Loaded
        query={query}
        lines={6}
        empty={{
          when: (list) => list.length === 0,
          show: (
            <Panel>
              <Empty title={t("policy.none")}>{t("policy.noneAbout")}</Empty>
            </Panel>
          ),
        }}
      >
        {(list) => (
          <div className="stack">
            {list.map((policy) => (
              <Panel key={policy.id} title={policy.rules.name}>
                <Facts
                  items={[
                    [t("nav.lan"), policy.lans.length === 0 ? t("policy.unused") : policy.lans.join(", ")],
                    [t("lan.passes"), policy.rules.ethertypes.join(", ")],
                    [t("lan.macs"), t("mac.limit", { count: policy.rules.macs_max })],
                    [
                      t("lan.broadcast"),
                      t("lan.rates", { broadcast: policy.rules.broadcast_pps, multicast: policy.rules.multicast_pps }),
                    ],
                    [
                      t("policy.quarantine"),
                      t("policy.minutes", { count: Math.round(policy.rules.quarantine_secs / 60) }),
                    ],
                  ]}
                />
              </Panel>
            ))}
          </div>
        )}
      </Loaded>
    </>
  );
}
