// Tables and identifiers.
import { render, screen, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";

import type { Whoami } from "../../src/api/types";
import { SignedInAs } from "../../src/app/shell";
import { Ident } from "../../src/ui/ident";
import { Table } from "../../src/ui/table";

const me = (operator: boolean): Whoami => ({ user: "us-1", name: "x", account: { id: "ac-1", name: "A", asns: [] }, roles: [], operator, can: [], language: null, exchange: "X" });

describe("a table", () => {
  it("names rows by their first column, titles cells for small screens, and aligns numbers", () => {
    render(
      <Table
        label="Ports"
        rows={[{ name: "one", speed: 10, id: "a" }]}
        keyOf={(row) => row.id}
        anchor={(row) => row.id}
        columns={[
          { title: "Name", cell: (row) => row.name },
          { title: "Speed", isNumber: true, cell: (row) => row.speed },
          { title: "Acts", isActs: true, cell: () => <button type="button">x</button> },
        ]}
      />,
    );
    const table = screen.getByRole("table", { name: "Ports" });
    expect(within(table).getAllByRole("columnheader").map((head) => head.textContent)).toEqual(["Name", "Speed", "Acts"]);
    expect(within(table).getByRole("rowheader").textContent).toBe("one");
    expect(within(table).getByRole("rowheader").closest("tr")?.id).toBe("a");
    const speed = within(table).getByRole("cell", { name: "10" });
    expect([speed.className, speed.dataset["label"]]).toEqual(["number", "Speed"]);
    expect(within(table).getByRole("cell", { name: "x" }).dataset["label"]).toBeUndefined();
  });
});

it("an identifier is shown to the staff, and to nobody else", () => {
  const { rerender } = render(<SignedInAs value={me(true)}><Ident id="sv-7" /></SignedInAs>);
  expect(screen.queryByText("sv-7")).not.toBeNull();
  rerender(<SignedInAs value={me(false)}><Ident id="sv-7" /></SignedInAs>);
  expect(screen.queryByText("sv-7")).toBeNull();
});
