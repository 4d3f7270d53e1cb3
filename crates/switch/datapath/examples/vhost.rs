//! Measures the cost of a packet at a vhost-user port, with Millrace's implementation and with DPDK's
//! `net_vhost`. The peer of each is a `net_virtio_user` in the same process ([`beside`]).
//!
//! ```text
//! cargo run --release -p millrace-datapath --features dpdk --example vhost -- [ROUNDS]
//! ```

#![allow(clippy::print_stdout)]

mod beside;

use std::path::Path;

use beside::{Comparison, Outcome, Specs, access, compare};
use millrace_datapath::io::{DeviceSpec, VnicKind, VnicSpec};

fn main() -> Outcome<()> {
    compare(&Comparison {
        name: "vhost",
        theirs: "net_vhost",
        varies: "rings",
        kinds: [("split", false), ("packed", true)],
        specs,
    })
}

fn specs(path: &Path, is_packed: bool, is_ours: bool) -> Specs {
    let number = 2 * usize::from(is_packed) + usize::from(is_ours);
    let socket = path.display();
    let port = if is_ours {
        DeviceSpec::Vnic(VnicSpec {
            kind: VnicKind::Vhost { tso: false },
            path: path.to_owned(),
            access: Some(access()),
        })
    } else {
        DeviceSpec::Vdev(format!(
            "net_vhost{number},iface={socket},queues=1,legacy-ol-flags=0"
        ))
    };
    let peer = DeviceSpec::Vdev(format!(
        "net_virtio_user{number},path={socket},queues=1,queue_size=1024,mrg_rxbuf=1,in_order=1,packed_vq={}",
        u8::from(is_packed)
    ));
    Specs {
        port,
        peer,
        is_port_first: true,
    }
}
