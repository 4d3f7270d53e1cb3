//! The functions that the fuzzers call: one for each decoder of untrusted bytes.
//!
//! A function accepts any bytes and returns; it panics only if a property is violated. `fuzz_targets/` has a fuzzer
//! for each, and `tests/replay.rs` replays their inputs (`corpus/`) in the ordinary tests.

#![forbid(unsafe_code)]
// A violated property is reported by a panic, which the fuzzer detects.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)]

mod af_packet;
mod agentx;
mod bgp;
mod bird;
mod bpf;
mod config;
mod controller;
mod courier;
mod detection;
mod endpoint;
mod files;
mod fileset;
mod fleet;
mod front_ends;
mod import;
mod ips;
mod kept;
mod l2ctl;
mod liveness;
mod memif;
mod nic;
mod openflow;
mod ovsdb;
mod parsers;
mod pipeline;
mod rest;
mod routing;
mod rules;
mod text;
mod transport;
mod tunnel;
mod vhost_messages;
mod vhost_ring;
mod wan;
mod window;
mod wire;

/// A function of untrusted bytes.
pub type Target = fn(&[u8]);

/// Every target, with the name of its corpus and of its fuzzer.
pub const TARGETS: &[(&str, Target)] = &[
    ("af_packet", af_packet::slot),
    ("agentx_session", agentx::session),
    ("bgp_messages", bgp::messages),
    ("bgp_peer", bgp::peer),
    ("bird_control", bird::control),
    ("bpf", bpf::bpf),
    ("config", config::config),
    ("controller_messages", controller::messages),
    ("courier_control", courier::control),
    ("courier_ticket", courier::ticket),
    ("endpoint_frames", endpoint::frames),
    ("etcd_answer", fleet::answer),
    ("fleet_document", fleet::document),
    ("fpm_session", routing::fpm),
    ("fragments", tunnel::fragments),
    ("gnmi_request", front_ends::gnmi),
    ("eve_json", ips::eve),
    ("import_lagopus", import::of_lagopus),
    ("import_linux", import::of_linux),
    ("import_ovs", import::of_ovs),
    ("ips_dns", parsers::dns),
    ("ips_fragments", ips::fragments),
    ("ips_http", parsers::http),
    ("ips_match", detection::matching),
    ("ips_mime", parsers::mime),
    ("ips_packets", ips::packets),
    ("ips_others", parsers::others),
    ("ips_smb", parsers::smb),
    ("ips_stream", ips::stream),
    ("ips_tls", parsers::tls),
    ("kept_flows", kept::flows),
    ("l2ctl_frames", l2ctl::frames),
    ("lab", files::lab),
    ("manifest", fileset::manifest),
    ("memif_messages", memif::messages),
    ("memif_ring", memif::ring),
    ("netlink_messages", routing::messages),
    ("nf_attach", window::attach),
    ("nf_window", window::window),
    ("nic_commands", nic::commands),
    ("nic_frames", nic::frames),
    ("nic_rings", nic::rings),
    ("oam_frames", liveness::oam),
    ("offload_planner", nic::planner),
    ("openflow_connection", openflow::connection),
    ("openflow_message", openflow::message),
    ("netconf_session", front_ends::netconf),
    ("ovs_rows", ovsdb::rows),
    ("ovsdb_session", ovsdb::session),
    ("pcap", files::pcap),
    ("pipeline", pipeline::pipeline),
    ("rtr_client", bgp::rtr),
    ("rest", rest::rest),
    ("rules_text", rules::text),
    ("scan", detection::scan),
    ("sflow_datagram", liveness::sflow),
    ("text", text::text),
    ("transport_packets", transport::packets),
    ("transport_peers", transport::peers),
    ("vhost_messages", vhost_messages::messages),
    ("vhost_ring", vhost_ring::ring),
    ("wan_files", wan::files),
    ("wan_frames", wan::frames),
    ("wan_text", wan::text),
    ("wire_layers", wire::layers),
    ("wire_rewrites", wire::rewrites),
    ("wire_tunnels", tunnel::envelopes),
];

/// Returns the target with this name.
///
/// # Panics
/// Panics if there is none: a fuzzer in `fuzz_targets/` has no line in [`TARGETS`].
pub fn target(name: &str) -> Target {
    TARGETS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, target)| *target)
        .expect("a line in TARGETS")
}
