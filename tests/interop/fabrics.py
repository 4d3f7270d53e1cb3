"""Configurations of two switches with a trunk between them, and the exchange file that describes them."""


# BFD that finds a silent trunk in a fifth of a second, and BFD for busy machines: a trunk is down when its link is, and live again
# only when frames pass in both directions.
FAST_BFD = "bfd = { min_tx_ms = 50, min_rx_ms = 50, multiplier = 4 }"
SLOW_BFD = "bfd = { min_tx_ms = 1000, min_rx_ms = 1000, multiplier = 30 }"


def switch_config(dpid, ports, bfd=FAST_BFD, queues=None):
    """Returns the configuration of a switch with kernel interfaces and tunnels, by port number. Without BFD, a trunk is live while
    its link is: a switch that does not get the processor for a fifth of a second does not lose it. `queues` has the number of receive
    queues of some ports, by name."""
    lines = ['[system]', 'state_dir = "FOLDER/state"', '[api]', 'socket = "FOLDER/api.sock"', '[[bridge]]', 'name = "br0"',
             f'dpid = "{dpid:016x}"', 'controllers = ["CONTROLLER"]', 'listen = ["punix:FOLDER/openflow.sock"]',
             'fail_mode = "secure"']
    for number, (name, device) in ports.items():
        lines += ["[[bridge.port]]", f'name = "{name}"', f"number = {number}", f'device = "{device}"', "mtu = 1700"]
        lines += [f"queues = {queues[name]}"] if name in (queues or {}) else []
        lines += ["wait_to_restore_s = 2", bfd] if bfd and "vxlan" in device else []
    return "\n".join(lines) + "\n"


def trunk_ports(end, trunk="north", number=1):
    """Returns the ports of a trunk at one of its ends. The port of its tunnel is 100 plus the trunk's number."""
    own, other = (1, 2) if end == "a" else (2, 1)
    return {50 + number: (f"{trunk}-{end}", f"kernel:{trunk}-{end}"),
            100 + number: (trunk, f"vxlan:remote=10.0.{number}.{other},local=10.0.{number}.{own},underlay={trunk}-{end},key=flow")}


def fabric(ports_of, trunks=("north",)):
    """Returns an exchange file's text with two switches, which have these ports, and trunks; the first trunk carries traffic."""
    text = ""
    numbers = range(101, 101 + len(trunks))
    for dpid, (site, ports) in enumerate(ports_of.items(), 1):
        speeds = ", ".join(f"{{ number = {number}, speed_mbps = 1000 }}" for number in sorted([*ports, *numbers]))
        text += f"""
[[site]]
name = "{site}"
[[switch]]
name = "{site}-1"
site = "{site}"
dpid = "{dpid:016x}"
ports = [{speeds}]
"""
    for number, trunk in zip(numbers, trunks):
        one, two = (f"{site}-1:{number}" for site in ports_of)
        text += f"""
[[trunk]]
name = "{trunk}"
kind = "vxlan"
ends = ["{one}", "{two}"]
cost = {10 * (number - 100)}
capacity_mbps = 100000
mtu = 1700
"""
    return text


def connection(account, name, port):
    """Returns a connection of an exchange file."""
    return f'[[connection]]\naccount = "{account}"\nname = "{name}"\nkind = "standalone"\nports = ["{port}"]\n'


def circuit(account, name, ends, mbps=None):
    """Returns a circuit of an exchange file between two pairs of connection and VLAN."""
    text = f'[[service]]\naccount = "{account}"\nname = "{name}"\nkind = "p2p_vc"\n'
    rate = f"capacity_mbps = {mbps}\n" if mbps else ""
    for one, vlan in ends:
        text += f'[[service.end]]\nconnection = ["{account}", "{one}"]\nvlan = {{ type = "dot1q", vlan = {vlan} }}\n{rate}'
    return text
