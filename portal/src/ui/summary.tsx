import { useEffect, useRef } from "react";

import { useText } from "../i18n/text";

export type FieldProblem = { field: string; message: string };

/** Focuses a field by its id; a composite field is focused at its first control. */
function focusField(id: string) {
  const element = document.getElementById(id);
  const control = element?.matches("input, button, textarea")
    ? element
    : element?.querySelector<HTMLElement>("input, button, textarea");
  (control ?? element)?.focus();
}

/** All errors of a form in one place, which takes the focus. Each leads to its field. */
export function ErrorSummary({ problems, attempt }: { problems: FieldProblem[]; attempt: number }) {
  const t = useText();
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (problems.length > 0) box.current?.focus();
    // The focus moves once for each attempt, not while the reader corrects the fields.
  }, [attempt]);
  if (problems.length === 0) return null;
  return (
    <div ref={box} className="summary" tabIndex={-1} role="group" aria-labelledby="summary-title">
      <h2 id="summary-title">{t("form.summary", { count: problems.length })}</h2>
      <ul>
        {problems.map((problem) => (
          <li key={problem.field + problem.message}>
            <a
              href={`#${problem.field}`}
              onClick={(event) => {
                event.preventDefault();
                focusField(problem.field);
              }}
            >
              {problem.message}
            </a>
          </li>
        ))}
      </ul>
    </div>
  );
}
