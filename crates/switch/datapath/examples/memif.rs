//! Measures the cost of a packet at a memif port, with Millrace's implementation and with DPDK's `net_memif`.
//! The peer of each is a `net_memif` in the same process ([`beside`]).
//!
//! ```text
//! cargo run --release -p millrace-datapath --features dpdk --example memif -- [ROUNDS]
//! ```

#![allow(clippy::print_stdout)]

mod beside;

use std::path::Path;

use beside::{Comparison, Outcome, Specs, access, compare};
use millrace_datapath::io::{DeviceSpec, VnicKind, VnicSpec};

fn main() -> Outcome<()> {
    compare(&Comparison {
        name: "memif",
        theirs: "net_memif",
        varies: "role",
        kinds: [("server", true), ("client", false)],
        specs,
    })
}

fn specs(path: &Path, is_server: bool, is_ours: bool) -> Specs {
    let dpdk = |is_server: bool, number: usize| {
        let role = if is_server { "server" } else { "client" };
        let path = path.display();
        DeviceSpec::Vdev(format!(
            "net_memif{number},role={role},socket={path},socket-abstract=no,rsize=10"
        ))
    };
    let ours = DeviceSpec::Vnic(VnicSpec {
        kind: VnicKind::Memif { id: 0 },
        path: path.to_owned(),
        access: is_server.then(access),
    });
    let number = 4 * usize::from(is_server) + 2 * usize::from(is_ours);
    Specs {
        port: if is_ours { ours } else { dpdk(is_server, number) },
        peer: dpdk(!is_server, number + 1),
        // The server is opened first.
        is_port_first: is_server,
    }
}
