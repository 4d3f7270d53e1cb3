import { useText } from "../i18n/text";
import { Button } from "./parts";

/** The buttons below a page of records, newest first: to older ones, and back to the newest. */
export function OlderPages({
  after,
  next,
  onChange,
}: {
  after: string | undefined;
  next: string | null | undefined;
  onChange: (after: string | undefined) => void;
}) {
  const t = useText();
  if (!after && !next) return null;
  return (
    <div className="buttons">
      {after ? <Button onPress={() => onChange(undefined)}>{t("audit.newest")}</Button> : null}
      {next ? <Button onPress={() => onChange(next)}>{t("audit.older")}</Button> : null}
    </div>
  );
}
