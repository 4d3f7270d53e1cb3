import { Link } from "@tanstack/react-router";

import type { Change } from "../api/types";
import { useText } from "../i18n/text";
import { Ident } from "./ident";
import { operationWord } from "./operations";

/** A change by its operation in words, as a link to its page. */
export function ChangeLink({ change }: { change: Pick<Change, "id" | "operation"> }) {
  const t = useText();
  return (
    <>
      <Link to="/changes/$id" params={{ id: change.id }}>
        {operationWord(t, change.operation)}
      </Link>{" "}
      <Ident id={change.id} />
    </>
  );
}
