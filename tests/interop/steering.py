"""An os-ken application that forwards packets of a port through other ports in order, controlled by a file: for tests of
chains.

STEERING_ORDERS is a file to which the test appends lines: `path 1 111 112 2`. STEERING_HEARD gets a line when the switch has
answered the barrier after each path.
"""

import os

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib import hub
from os_ken.ofproto import ofproto_v1_3

# Interval at which the file of commands is read, in seconds.
LOOK = 0.02


class Steering(app_manager.OSKenApp):
    """Paths over logical ports."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.heard = open(os.environ["STEERING_HEARD"], "a", buffering=1)
        self.path = None
        self.laid = set()

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def connected(self, event):
        self.path = event.msg.datapath
        hub.spawn(self.obey)

    @set_ev_cls(ofp_event.EventOFPBarrierReply, MAIN_DISPATCHER)
    def laid_out(self, event):
        if event.msg.xid in self.laid:
            self.heard.write("path\n")

    def obey(self):
        done = 0
        while True:
            with open(os.environ["STEERING_ORDERS"]) as file:
                orders = [line for line in file if line.endswith("\n")]
            for order in orders[done:]:
                self.lay([int(port) for port in order.split()[1:]])
            done = len(orders)
            hub.sleep(LOOK)

    def lay(self, ports):
        """Installs entries from the end to the beginning, so that the rest of a path is always complete."""
        path, parser = self.path, self.path.ofproto_parser
        for here, there in reversed(list(zip(ports, ports[1:]))):
            output = parser.OFPActionOutput(there)
            apply = parser.OFPInstructionActions(path.ofproto.OFPIT_APPLY_ACTIONS, [output])
            path.send_msg(parser.OFPFlowMod(path, priority=10, match=parser.OFPMatch(in_port=here), instructions=[apply]))
            barrier = parser.OFPBarrierRequest(path)
            path.set_xid(barrier)
            if here == ports[0]:
                self.laid.add(barrier.xid)
            path.send_msg(barrier)
