import { useState } from "react";

import { useText } from "../i18n/text";
import { Select } from "./fields";
import { Button, Notice } from "./parts";
import { DIALECTS, routerConfig, type Dialect, type RouterEnd } from "./routers";

const KEPT = "millrace.dialect";

/** The configuration of the member's router for one end, to be copied. The dialect is kept in this browser. */
export function RouterConfig({ end }: { end: RouterEnd }) {
  const t = useText();
  const [dialect, setDialect] = useState<Dialect>(
    () => DIALECTS.find((known) => known.id === localStorage.getItem(KEPT))?.id ?? "ios-xr",
  );
  /** True after a copy, false if the browser refused the copy. */
  const [copied, setCopied] = useState<boolean>();
  const text = routerConfig(dialect, end);
  const choose = (key: unknown) => {
    const known = DIALECTS.find((known) => known.id === key);
    if (!known) return;
    localStorage.setItem(KEPT, known.id);
    setCopied(undefined);
    setDialect(known.id);
  };
  const copy = async () => {
    try {
      // Without TLS, a page cannot use the clipboard.
      await navigator.clipboard.writeText(text);
      setCopied(true);
    } catch {
      setCopied(false);
    }
  };
  return (
    <div className="stack tight">
      <div className="row spread">
        <Select
          label={t("router.dialect")}
          options={DIALECTS.map(({ id, name }) => ({ id, name }))}
          value={dialect}
          onChange={choose}
        />
        <Button onPress={() => void copy()}>{t(copied ? "router.copied" : "router.copy")}</Button>
      </div>
      {copied === false ? <Notice tone="wait" title={t("router.notCopied")} live /> : null}
      <pre className="frame" tabIndex={0} aria-label={t("router.title")}>
        {text}
      </pre>
      <p className="hint">{t(end.rateMbps === null ? "router.about" : "router.aboutRate")}</p>
    </div>
  );
}
