// Tables, identifiers, and what the staff types: AS numbers, ports, times.
import { render, screen, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";

import type { Whoami } from "../../src/api/types";
import { SignedInAs } from "../../src/app/shell";
import { parsePorts } from "../../src/screens/fabric";
import { parseAsns } from "../../src/screens/members";
import { isoTime } from "../../src/screens/notices";
import { Ident } from "../../src/ui/ident";
import { Table } from "../../src/ui/table";

const me = (operator: boolean): Whoami => ({
  user: "us-1",
  name: "x",
  account: { id: "ac-1", name: "A", asns: [] },
  roles: [],
  operator,
  can: [],
  language: null,
  exchange: "X",
});

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
    expect(
      within(table)
        .getAllByRole("columnheader")
        .map((head) => head.textContent),
    ).toEqual(["Name", "Speed", "Acts"]);
    expect(within(table).getByRole("rowheader").textContent).toBe("one");
    expect(within(table).getByRole("rowheader").closest("tr")?.id).toBe("a");
    const speed = within(table).getByRole("cell", { name: "10" });
    expect([speed.className, speed.dataset["label"]]).toEqual(["number", "Speed"]);
    expect(within(table).getByRole("cell", { name: "x" }).dataset["label"]).toBeUndefined();
  });
});

it("an identifier is shown to the staff, and to nobody else", () => {
  const { rerender } = render(
    <SignedInAs value={me(true)}>
      <Ident id="sv-7" />
    </SignedInAs>,
  );
  expect(screen.queryByText("sv-7")).not.toBeNull();
  rerender(
    <SignedInAs value={me(false)}>
      <Ident id="sv-7" />
    </SignedInAs>,
  );
  expect(screen.queryByText("sv-7")).toBeNull();
});

describe("what the staff types", () => {
  it("AS numbers with or without AS", () => {
    expect(parseAsns("AS64500, 64501;as64502")).toEqual([64500, 64501, 64502]);
    expect(parseAsns("")).toEqual([]);
    for (const wrong of ["x", "AS", "0", "4294967295", "-5", "64500x"]) expect(parseAsns(wrong), wrong).toBeUndefined();
  });

  it("port numbers and ranges, each once", () => {
    expect(parsePorts("1-3, 7 3")).toEqual([1, 2, 3, 7]);
    for (const wrong of ["x", "5-4", "0", "1-9999", "-5"]) expect(parsePorts(wrong), wrong).toBeUndefined();
  });

  it("a time of the reader's zone, as the engine wants it", () => {
    expect(isoTime("2026-12-01T02:00")).toBe(new Date(2026, 11, 1, 2).toISOString());
    expect([isoTime(""), isoTime("soon")]).toEqual([undefined, undefined]);
  });
});
