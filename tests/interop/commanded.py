"""An os-ken application that executes commands from a file and records messages, for tests of several controllers.

COMMANDED_ORDERS is a file to which the test appends lines: `role master 7`, `flow 3` (an entry with that priority).
COMMANDED_HEARD is the file for the messages of the switch, one JSON object a line.
"""

import json
import os

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib import hub
from os_ken.ofproto import ofproto_v1_3

# Interval at which the file of commands is read, in seconds.
LOOK = 0.02


class Commanded(app_manager.OSKenApp):
    """A controller that only executes commands."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.heard = open(os.environ["COMMANDED_HEARD"], "a", buffering=1)
        hub.spawn(self.obey)

    def note(self, what, **more):
        self.heard.write(json.dumps({"what": what, **more}) + "\n")

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def connected(self, event):
        self.path = event.msg.datapath
        self.note("connected", dpid=self.path.id)

    @set_ev_cls(ofp_event.EventOFPRoleReply, MAIN_DISPATCHER)
    def role(self, event):
        self.note("role", role=event.msg.role, generation=event.msg.generation_id)

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def refused(self, event):
        self.note("error", type=event.msg.type, code=event.msg.code)

    @set_ev_cls(ofp_event.EventOFPBarrierReply, MAIN_DISPATCHER)
    def done(self, _):
        self.note("barrier")

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        self.note("packet_in", reason=event.msg.reason, port=event.msg.match["in_port"])

    def obey(self):
        """Executes commands, line by line, as they are appended."""
        done = 0
        while True:
            with open(os.environ["COMMANDED_ORDERS"]) as file:
                orders = [line for line in file if line.endswith("\n")]
            for order in orders[done:]:
                self.execute(*order.split())
            done = len(orders)
            hub.sleep(LOOK)

    def execute(self, kind, *arguments):
        path, parser, ofproto = self.path, self.path.ofproto_parser, self.path.ofproto
        if kind == "role":
            role = {"master": ofproto.OFPCR_ROLE_MASTER, "slave": ofproto.OFPCR_ROLE_SLAVE,
                    "equal": ofproto.OFPCR_ROLE_EQUAL}[arguments[0]]
            path.send_msg(parser.OFPRoleRequest(path, role, int(arguments[1])))
        elif kind == "flow":
            to_us = [parser.OFPActionOutput(ofproto.OFPP_CONTROLLER, ofproto.OFPCML_NO_BUFFER)]
            apply = parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, to_us)
            path.send_msg(parser.OFPFlowMod(path, priority=int(arguments[0]), match=parser.OFPMatch(in_port=2),
                                            instructions=[apply]))
            path.send_msg(parser.OFPBarrierRequest(path))
