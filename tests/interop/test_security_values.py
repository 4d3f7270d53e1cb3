"""The table of docs/security.md with the values that a member may name and that speak for somebody else: it has each field of each
order that the model knows, and each test that it names exists.
"""

import pathlib
import re

from switches import ROOT

PAGE = ROOT / "docs" / "security.md"
ORDERS = ROOT / "crates" / "exchange" / "ix-model" / "src" / "operation.rs"
# The rows of the table, and the fields of orders that they are about: of all orders, or of one.
SPEAKING = {
    "AS number of an account": ["CreateAccount.asns", "UpdateAccount.asns"],
    "AS number of an end, of a session with a route server": ["ConfigureEnd.asns", "RedeemServiceKey.asns"],
    "AS-SET of an account, of a session": ["as_set"],
    "destination of a filter": ["matching", "alternatives", "exempt_until"],
    "peers of a filter": ["peers"],
    "MAC address of an end": ["AddMac.address"],
    "IP address of an end": ["AddIp.address"],
    "VLAN of an end": ["vlan", "vlans"],
    "the other party of a circuit": ["peer", "secret"],
    "`managing_account`, `consuming_account`, `billing_account`": ["account", "parent"],
    "name of an account": ["CreateAccount.name", "UpdateAccount.name"],
    "name of a user": ["CreateUser.name"],
    "mail address of a user": ["email"],
}
# Rows about values that come in no order of the model.
ELSEWHERE = {"mail address of a contact", "members of an AS-SET", "URL of a webhook", "routes by BGP"}
# Fields that name an object of the exchange, whose owner the table of permissions decides about.
OBJECTS = {"switch", "site", "trunk", "user", "connection", "service", "config", "target", "approval", "mac", "ip", "policy", "id", "filter",
           "key", "ports", "ends", "trunks"}
# Fields that only the staff or the engine may set.
STAFF = {"dpid", "retired", "risk_group", "contract_percent", "cost", "mtu", "drained", "limits", "networks", "generation", "clean", "numbers",
         "rank", "order", "state", "origin"}
# Fields that say something about the object itself.
OWN = {"kind", "role", "roles", "discoverable", "deactivated", "language", "capacity_mbps", "shut_down", "reason", "valid_from", "valid_until", "action",
       "comment", "external_ref", "CreateSite.name", "CreateSwitch.name", "CreateTrunk.name", "CreateConnection.name", "CreateService.name",
       "RenameService.name"}


def rows():
    """Returns the cells of the table, row by row."""
    lines = iter(PAGE.read_text().splitlines())
    for line in lines:
        if line.startswith("| value | acts on it |"):
            break
    table = []
    for line in lines:
        if not line.startswith("|"):
            return table[1:]
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    raise AssertionError("the table has no end")


def fields():
    """Returns the fields of all orders: `AddMac.address`."""
    text = ORDERS.read_text()
    body = text[text.index("pub enum Operation {"):]
    body = re.sub(r"//[^\n]*|#\[[^\]]*\]", "", body[: body.index("\n}")])
    found = []
    for order, inside in re.findall(r"(\w+) \{([^}]*)\}", body[body.index("{") + 1:]):
        found += [f"{order}.{name}" for name in re.findall(r"(\w+):", re.sub(r"<[^<>]*>|\([^()]*\)", "", inside))]
    return found


def test_each_field_of_an_order_is_in_the_table_or_speaks_for_nobody_else():
    found = fields()
    assert len(found) > 100 and "AddMac.address" in found, found
    classes = [set(names) for names in SPEAKING.values()] + [OBJECTS, STAFF, OWN]
    for field in found:
        homes = [names for names in classes if names & {field, field.split(".")[1]}]
        assert len(homes) == 1, f"{field}: expected in one class of this file; who proves it? ({len(homes)} classes have it)"
    known = {name for field in found for name in (field, field.split(".")[1])}
    unknown = set().union(*classes) - known
    assert not unknown, f"no order has these fields any more: {unknown}"


def test_each_row_has_its_fields_and_each_test_that_it_names_exists():
    table = rows()
    assert {row[0] for row in table} == SPEAKING.keys() | ELSEWHERE
    sources = {path: path.read_text() for folder in ("crates/exchange", "tests/interop") for path in (ROOT / folder).rglob("*")
               if path.suffix in (".rs", ".py")}
    for value, _, proof, _, tests in table:
        assert proof, value
        names = re.findall(r"`([^`]+)`", tests)
        assert names or value == "members of an AS-SET", f"{value}: no test"
        for name in names:
            name = name.split(" ")[0]
            if re.search(r"\.(rs|py)$", name):
                assert any(str(path).endswith(name) for path in sources), f"{value}: no file {name}"
            elif re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+){3,}", name):
                assert any(f"fn {name}(" in text for text in sources.values()), f"{value}: no test {name}"
            else:
                is_named = pathlib.Path(ROOT / "crates" / "exchange" / name).is_dir() or name == "AddIp"
                assert is_named, f"{value}: what is {name}?"
