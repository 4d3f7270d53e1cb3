"""An os-ken application: learns MAC addresses, and installs a flow for each pair of hosts that communicate."""

from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import ethernet, packet
from os_ken.ofproto import ofproto_v1_3


class LearningSwitch(app_manager.OSKenApp):
    """The learning switch of OpenFlow tutorials."""

    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ports = {}

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def connected(self, event):
        path = event.msg.datapath
        to_us = path.ofproto_parser.OFPActionOutput(path.ofproto.OFPP_CONTROLLER, path.ofproto.OFPCML_NO_BUFFER)
        self.install(path, 0, path.ofproto_parser.OFPMatch(), [to_us])
        self.logger.info("connected dpid=%016x", path.id)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        message = event.msg
        path = message.datapath
        in_port = message.match["in_port"]
        frame = packet.Packet(message.data).get_protocol(ethernet.ethernet)
        self.ports[frame.src] = in_port
        out_port = self.ports.get(frame.dst, path.ofproto.OFPP_FLOOD)
        actions = [path.ofproto_parser.OFPActionOutput(out_port)]
        if out_port != path.ofproto.OFPP_FLOOD:
            match = path.ofproto_parser.OFPMatch(in_port=in_port, eth_dst=frame.dst, eth_src=frame.src)
            self.install(path, 1, match, actions)
        data = message.data if message.buffer_id == path.ofproto.OFP_NO_BUFFER else None
        path.send_msg(path.ofproto_parser.OFPPacketOut(
            datapath=path, buffer_id=message.buffer_id, in_port=in_port, actions=actions, data=data))

    def install(self, path, priority, match, actions):
        apply = path.ofproto_parser.OFPInstructionActions(path.ofproto.OFPIT_APPLY_ACTIONS, actions)
        path.send_msg(path.ofproto_parser.OFPFlowMod(
            datapath=path, priority=priority, match=match, instructions=[apply]))
