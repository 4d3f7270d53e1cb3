// Tables as files for spreadsheets (RFC 4180).

/**
 * Returns a cell. An apostrophe precedes text that a spreadsheet would run as a formula, whose signs may be full-width,
 * because names come from other members.
 */
function cell(value: string | number | null): string {
  if (typeof value === "number") return String(value);
  const text = value ?? "";
  const inert = /^[=+\-@\t\r＝＋－ー＠]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
}

/** Returns a table as text, its first row the names of its columns. */
export function csv(rows: readonly (readonly (string | number | null)[])[]): string {
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/** Saves a table as a file. The byte order mark at the start tells spreadsheets that the file is UTF-8. */
export function saveCsv(name: string, rows: readonly (readonly (string | number | null)[])[]): void {
  const address = URL.createObjectURL(new Blob(["\ufeff", csv(rows)], { type: "text/csv;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
