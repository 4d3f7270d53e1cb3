#!/usr/bin/env python3
"""Creates the golden vectors of OpenFlow 1.3 messages with os-ken, an independent implementation.

It needs os-ken, and writes one file NAME.hex for each message, and errors.txt with the numbers of every error code that
os-ken has a name for.
"""
import pathlib

from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

HERE = pathlib.Path(__file__).parent


class Datapath:
    """The part of a datapath that serializers use."""
    ofproto = ofp
    ofproto_parser = parser

    def set_xid(self, msg):
        msg.set_xid(0x01020304)


dp = Datapath()


def write(name, msg):
    msg.set_xid(0x01020304) if msg.xid is None else None
    msg.serialize()
    (HERE / f"{name}.hex").write_text(bytes(msg.buf).hex() + "\n")


# Values and masks of every field, in the order of OXM numbers.
MATCHES = {
    "ports_and_metadata": dict(in_port=7, in_phy_port=8, metadata=(0x1100, 0xff00), tunnel_id=(5, 0xff)),
    "ethernet": dict(eth_dst=("01:00:00:00:00:00", "01:00:00:00:00:00"), eth_src="02:00:00:00:00:01",
                     eth_type=0x88b5, vlan_vid=0x1064, vlan_pcp=5),
    "any_vlan": dict(vlan_vid=(0x1000, 0x1000)),
    "tcp": dict(eth_type=0x800, ip_dscp=10, ip_ecn=2, ip_proto=6, ipv4_src=("10.0.0.0", "255.0.0.0"),
                ipv4_dst="10.1.2.3", tcp_src=1024, tcp_dst=80),
    "udp": dict(eth_type=0x800, ip_proto=17, udp_src=53, udp_dst=5353),
    "sctp": dict(eth_type=0x800, ip_proto=132, sctp_src=1, sctp_dst=65535),
    "icmpv4": dict(eth_type=0x800, ip_proto=1, icmpv4_type=8, icmpv4_code=0),
    "arp": dict(eth_type=0x806, arp_op=1, arp_spa=("10.0.0.1", "255.255.255.0"), arp_tpa="10.0.0.2",
                arp_sha="02:00:00:00:00:01", arp_tha=("02:00:00:00:00:00", "ff:ff:ff:00:00:00")),
    "ipv6": dict(eth_type=0x86dd, ip_proto=58, ipv6_src=("2001:db8::", "ffff:ffff::"),
                 ipv6_dst="2001:db8::1", ipv6_flabel=(0x12345, 0xfffff - 1), icmpv6_type=135, icmpv6_code=0,
                 ipv6_nd_target="2001:db8::2", ipv6_nd_sll="02:00:00:00:00:09"),
    "ipv6_advert": dict(eth_type=0x86dd, ip_proto=58, icmpv6_type=136, ipv6_nd_target="fe80::1",
                        ipv6_nd_tll="02:00:00:00:00:0a"),
    "exthdr": dict(eth_type=0x86dd, ipv6_exthdr=(0x40, 0x1c0)),
    "mpls": dict(eth_type=0x8847, mpls_label=0xabcde, mpls_tc=3, mpls_bos=1),
    "pbb": dict(eth_type=0x88e7, pbb_isid=(0x123400, 0xffff00)),
}


def actions():
    return [
        parser.OFPActionOutput(3, 0), parser.OFPActionOutput(ofp.OFPP_CONTROLLER, ofp.OFPCML_NO_BUFFER),
        parser.OFPActionCopyTtlOut(), parser.OFPActionCopyTtlIn(), parser.OFPActionSetMplsTtl(9),
        parser.OFPActionDecMplsTtl(), parser.OFPActionPushVlan(0x88a8), parser.OFPActionPopVlan(),
        parser.OFPActionPushMpls(0x8848), parser.OFPActionPopMpls(0x800), parser.OFPActionSetQueue(4),
        parser.OFPActionGroup(0x1234), parser.OFPActionSetNwTtl(64), parser.OFPActionDecNwTtl(),
        parser.OFPActionPushPbb(0x88e7), parser.OFPActionPopPbb(),
    ]


SETS = dict(eth_dst="02:00:00:00:00:01", vlan_vid=0x1005, vlan_pcp=7, ip_dscp=46, ipv4_src="192.0.2.1",
            tcp_dst=443, arp_op=2, ipv6_dst="2001:db8::9", ipv6_flabel=0xfffff, ipv6_nd_tll="02:00:00:00:00:0b",
            mpls_label=16, mpls_bos=1, pbb_isid=0xabcdef, tunnel_id=0x1122334455667788)


def flow_mod(name, match, instructions, **kwargs):
    args = dict(datapath=dp, table_id=3, priority=1000, match=parser.OFPMatch(**match), instructions=instructions)
    args.update(kwargs)
    write(f"flow_mod_{name}", parser.OFPFlowMod(**args))


for name, match in MATCHES.items():
    flow_mod(f"match_{name}", match, [])
flow_mod("all_actions", {}, [parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions())])
flow_mod("set_fields", {}, [parser.OFPInstructionActions(
    ofp.OFPIT_APPLY_ACTIONS, [parser.OFPActionSetField(**{field: value}) for field, value in SETS.items()])])
flow_mod("all_instructions", dict(in_port=1), [
    parser.OFPInstructionMeter(5),
    parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, [parser.OFPActionOutput(1)]),
    parser.OFPInstructionActions(ofp.OFPIT_CLEAR_ACTIONS, []),
    parser.OFPInstructionActions(ofp.OFPIT_WRITE_ACTIONS, [parser.OFPActionOutput(2)]),
    parser.OFPInstructionWriteMetadata(0x1234, 0xffff),
    parser.OFPInstructionGotoTable(4),
])
flow_mod("delete", {}, [], command=ofp.OFPFC_DELETE, table_id=255, cookie=1, cookie_mask=0xff,
         out_port=9, out_group=10, buffer_id=ofp.OFP_NO_BUFFER)
flow_mod("timeouts_and_flags", {}, [], command=ofp.OFPFC_MODIFY_STRICT, idle_timeout=30, hard_timeout=60,
         buffer_id=77, flags=31, cookie=0xfedcba9876543210)

write("hello", parser.OFPHello(dp, [parser.OFPHelloElemVersionBitmap([1, 4])]))
write("echo_request", parser.OFPEchoRequest(dp, b"millrace"))
write("echo_reply", parser.OFPEchoReply(dp, b"millrace"))
write("error", parser.OFPErrorMsg(dp, 4, 9, b"\x04\x0e\x00\x38\x00\x00\x00\x01"))
write("experimenter", parser.OFPExperimenter(dp, 0x4f4e4600, 1911, bytes(range(8))))
flags = ofp.ONF_BF_ATOMIC | ofp.ONF_BF_ORDERED
write("bundle_commit", parser.ONFBundleCtrlMsg(dp, 77, ofp.ONF_BCT_COMMIT_REQUEST, flags, []))
write(
    "bundle_add",
    parser.ONFBundleAddMsg(dp, 77, flags, parser.OFPFlowMod(dp, command=ofp.OFPFC_ADD, out_port=1, out_group=2), []),
)
write("features_request", parser.OFPFeaturesRequest(dp))
write("get_config_request", parser.OFPGetConfigRequest(dp))
write("set_config", parser.OFPSetConfig(dp, ofp.OFPC_FRAG_DROP, 0xffff))
write("packet_out", parser.OFPPacketOut(dp, ofp.OFP_NO_BUFFER, ofp.OFPP_CONTROLLER,
                                        [parser.OFPActionOutput(ofp.OFPP_TABLE)], bytes(range(64))))
write("packet_out_buffered", parser.OFPPacketOut(dp, 9, 3, [parser.OFPActionOutput(ofp.OFPP_FLOOD)]))
write("port_mod", parser.OFPPortMod(dp, 3, "02:00:00:00:00:03", 0x65, 0x65, 0x2820))
write("table_mod", parser.OFPTableMod(dp, 255, 3))
BUCKETS = [parser.OFPBucket(10, 1, ofp.OFPG_ANY, [parser.OFPActionOutput(1)]),
           parser.OFPBucket(20, ofp.OFPP_ANY, 7, [parser.OFPActionDecNwTtl(), parser.OFPActionOutput(2)])]
write("group_mod", parser.OFPGroupMod(dp, ofp.OFPGC_MODIFY, ofp.OFPGT_FF, 42, BUCKETS))
write("group_mod_delete_all", parser.OFPGroupMod(dp, ofp.OFPGC_DELETE, 0, ofp.OFPG_ALL, []))
write("meter_mod", parser.OFPMeterMod(dp, ofp.OFPMC_ADD, 0xd, 5, [
    parser.OFPMeterBandDrop(1000, 50), parser.OFPMeterBandDscpRemark(2000, 60, 1)]))
write("barrier_request", parser.OFPBarrierRequest(dp))
write("queue_get_config_request", parser.OFPQueueGetConfigRequest(dp, ofp.OFPP_ANY))
write("role_request", parser.OFPRoleRequest(dp, ofp.OFPCR_ROLE_MASTER, 0x0102030405060708))
write("get_async_request", parser.OFPGetAsyncRequest(dp))
write("set_async", parser.OFPSetAsync(dp, [3, 4], [1, 7], [15, 0]))

write("multipart_desc", parser.OFPDescStatsRequest(dp, 0))
for kind in ["Flow", "Aggregate"]:
    write(f"multipart_{kind.lower()}", getattr(parser, f"OFP{kind}StatsRequest")(
        dp, 0, 4, 5, 6, 7, 8, parser.OFPMatch(in_port=9)))
write("multipart_table", parser.OFPTableStatsRequest(dp, 0))
write("multipart_port_stats", parser.OFPPortStatsRequest(dp, 0, ofp.OFPP_ANY))
write("multipart_queue", parser.OFPQueueStatsRequest(dp, 0, 1, ofp.OFPQ_ALL))
write("multipart_group", parser.OFPGroupStatsRequest(dp, 0, ofp.OFPG_ALL))
write("multipart_group_desc", parser.OFPGroupDescStatsRequest(dp, 0))
write("multipart_group_features", parser.OFPGroupFeaturesStatsRequest(dp, 0))
write("multipart_meter", parser.OFPMeterStatsRequest(dp, 0, ofp.OFPM_ALL))
write("multipart_meter_config", parser.OFPMeterConfigStatsRequest(dp, 0, 3))
write("multipart_meter_features", parser.OFPMeterFeaturesStatsRequest(dp, 0))
write("multipart_port_desc", parser.OFPPortDescStatsRequest(dp, 0))
write("multipart_table_features_ask", parser.OFPTableFeaturesStatsRequest(dp, 0, []))
write("multipart_table_features_set", parser.OFPTableFeaturesStatsRequest(dp, 0, [parser.OFPTableFeaturesStats(
    table_id=1, name=b"acl", metadata_match=0xffffffffffffffff, metadata_write=0xff, config=3, max_entries=1000,
    properties=[
        parser.OFPTableFeaturePropInstructions(type_=ofp.OFPTFPT_INSTRUCTIONS, instruction_ids=[
            parser.OFPInstructionId(ofp.OFPIT_GOTO_TABLE), parser.OFPInstructionId(ofp.OFPIT_APPLY_ACTIONS)]),
        parser.OFPTableFeaturePropNextTables(type_=ofp.OFPTFPT_NEXT_TABLES, table_ids=[2, 3, 4]),
        parser.OFPTableFeaturePropActions(type_=ofp.OFPTFPT_WRITE_ACTIONS, action_ids=[
            parser.OFPActionId(ofp.OFPAT_OUTPUT), parser.OFPActionId(ofp.OFPAT_SET_FIELD)]),
        parser.OFPTableFeaturePropOxm(type_=ofp.OFPTFPT_MATCH, oxm_ids=[
            parser.OFPOxmId("in_port"), parser.OFPOxmId("eth_dst", hasmask=True)]),
        parser.OFPTableFeaturePropOxm(type_=ofp.OFPTFPT_APPLY_SETFIELD_MISS, oxm_ids=[]),
    ])]))

GROUPS = "OFPHFC OFPBRC OFPBAC OFPBIC OFPBMC OFPFMFC OFPGMFC OFPPMFC OFPTMFC OFPQOFC OFPSCFC OFPRRFC OFPMMFC OFPTFFC"
lines = [f"{name} {type_} {getattr(ofp, name)}"
         for type_, prefix in enumerate(GROUPS.split())
         for name in sorted(dir(ofp)) if name.startswith(prefix + "_")]
(HERE / "errors.txt").write_text("\n".join(lines) + "\n")
