"""A learning switch as a controller of OpenFlow 1.3 for demo.sh, with nothing but Python's library: python3 learning_controller.py PORT.

Its one entry, `priority=0 actions=CONTROLLER`, sends it every packet of a new conversation; it sends the packet to all ports, as a
hub, which is enough to show what happens to its entry when it dies.
"""

import socket
import struct
import sys

HELLO, ECHO_REQUEST, ECHO_REPLY, FEATURES_REQUEST, PACKET_IN, PACKET_OUT, FLOW_MOD = 0, 2, 3, 5, 10, 13, 14
FLOOD, CONTROLLER, NO_BUFFER = 0xFFFFFFFB, 0xFFFFFFFD, 0xFFFFFFFF


def message(kind, body=b"", xid=1):
    return struct.pack("!BBHI", 4, kind, 8 + len(body), xid) + body


def output(port):
    """An action (OpenFlow 1.3.5, section 7.2.5)."""
    return struct.pack("!HHIH6x", 0, 16, port, 0xFFFF)


def table_miss():
    """A flow_mod (section 7.3.4.1) that adds priority=0,actions=CONTROLLER to table 0: all packets match."""
    fixed = struct.pack("!QQBBHHHIIIH2x", 0, 0, 0, 0, 0, 0, 0, NO_BUFFER, FLOOD | 0xF, FLOOD | 0xF, 0)
    everything = struct.pack("!HH4x", 1, 4)
    apply_actions = struct.pack("!HH4x", 4, 24) + output(CONTROLLER)
    return message(FLOW_MOD, fixed + everything + apply_actions)


def packet_out(body):
    """A packet_out (section 7.3.6) of the packet in a packet_in (section 7.4.1), to all ports but the one that it came from."""
    (match_length,) = struct.unpack_from("!H", body, 18)
    in_port = body[24:28]  # the first field of the match
    packet = body[16 + (match_length + 7) // 8 * 8 + 2:]
    return message(PACKET_OUT, struct.pack("!I4sH6x", NO_BUFFER, in_port, 16) + output(FLOOD) + packet)


def main():
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
        line, _ = listener.accept()
    with line, line.makefile("rb") as stream:
        line.sendall(message(HELLO) + message(FEATURES_REQUEST) + table_miss())
        print("connected", flush=True)
        while len(head := stream.read(8)) == 8:
            _, kind, length, xid = struct.unpack("!BBHI", head)
            body = stream.read(length - 8)
            if kind == ECHO_REQUEST:
                line.sendall(message(ECHO_REPLY, body, xid))
            elif kind == PACKET_IN:
                line.sendall(packet_out(body))


main()
