import type { ReactNode } from "react";

/** A column of a table. */
export type Column<T> = {
  /** The title, also of the cells on small screens, where each row is a card. */
  title: string;
  cell: (row: T) => ReactNode;
  /** True for numbers, which are aligned at their end. */
  isNumber?: boolean;
  /** True for the column of buttons, whose title only screen readers read. */
  isActs?: boolean;
};

/** Rows with a head. The first column names the row. */
export function Table<T>({
  label,
  columns,
  rows,
  keyOf,
  anchor,
  isWide = false,
}: {
  label?: string;
  columns: Column<T>[];
  rows: readonly T[];
  keyOf: (row: T) => string | number;
  /** Returns the id by which an address leads to a row. */
  anchor?: (row: T) => string;
  /** True for a table that scrolls in its region on small screens, too: hundreds of rows of figures make no cards. */
  isWide?: boolean;
}) {
  return (
    <table className={isWide ? "table" : "table cards"} {...(label ? { "aria-label": label } : {})}>
      <thead>
        <tr>
          {columns.map((column) => (
            <th key={column.title} scope="col" className={column.isNumber ? "number" : undefined}>
              {column.isActs ? <span className="visually-hidden">{column.title}</span> : column.title}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={keyOf(row)} id={anchor?.(row)}>
            {columns.map((column, index) =>
              index === 0 ? (
                <th key={column.title} scope="row">
                  {column.cell(row)}
                </th>
              ) : column.isActs ? (
                <td key={column.title}>{column.cell(row)}</td>
              ) : (
                <td key={column.title} className={column.isNumber ? "number" : undefined} data-label={column.title}>
                  {column.cell(row)}
                </td>
              ),
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
