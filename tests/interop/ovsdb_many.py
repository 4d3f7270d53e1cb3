"""Many ports by ovsdbapp, as Neutron's agent makes them: run by Debian's Python, which has the package. Prints times in s as JSON."""

import json
import sys
import time

from ovsdbapp.backend.ovs_idl import connection
from ovsdbapp.schema.open_vswitch import impl_idl


def main():
    """Adds ports to two bridges, patch to patch, a hundred in a transaction; then connects once more and times its own replica."""
    socket, count = sys.argv[1], int(sys.argv[2])

    def connected():
        idl = connection.OvsdbIdl.from_server(socket, "Open_vSwitch")
        return impl_idl.OvsdbIdl(connection.Connection(idl, timeout=600))

    api = connected()
    for bridge in ("br0", "br1"):
        api.add_br(bridge, datapath_type="netdev").execute(check_error=True)
    began = time.monotonic()
    for first in range(0, count // 2, 50):
        with api.transaction(check_error=True) as transaction:
            for number in range(first, min(count // 2, first + 50)):
                for bridge, name, peer in (("br0", f"t{number}", f"u{number}"), ("br1", f"u{number}", f"t{number}")):
                    transaction.add(api.add_port(bridge, name))
                    transaction.add(api.db_set("Interface", name, ("type", "patch"), ("options", {"peer": peer})))
    added = time.monotonic() - began
    began = time.monotonic()
    fresh = connected()
    ports = sum(len(fresh.list_ports(bridge).execute(check_error=True)) for bridge in ("br0", "br1"))
    print(json.dumps({"added": added, "replica": time.monotonic() - began, "ports": ports}))


main()
