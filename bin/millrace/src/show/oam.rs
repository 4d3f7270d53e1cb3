//! `millrace show oam`.

use millrace_api::client::{Client, ClientError};
use millrace_api::view::Oam;
use serde::Serialize;

use crate::human::or_dash;
use crate::table::Table;

/// A port and its OAM.
#[derive(Serialize)]
pub(super) struct PortOam {
    port: String,
    oam: Oam,
}

/// Returns the ports of a bridge that have BFD, continuity checks or flap damping.
pub(super) fn monitored(client: &Client, bridge: &str) -> Result<Vec<PortOam>, ClientError> {
    let ports = client.ports(bridge)?.into_iter();
    let monitored = ports.filter_map(|port| {
        let oam = port.oam?;
        Some(PortOam { port: port.name, oam })
    });
    Ok(monitored.collect())
}

/// Returns a row for each port.
pub(super) fn table(list: &[PortOam]) -> Table {
    let headings = [
        "PORT",
        "LIVE",
        ">RESTORES IN",
        "BFD",
        "PEER",
        "DIAGNOSTIC",
        ">DETECTION",
        "CCM",
        ">REMOTE MEP",
        ">FLAPS",
        ">DAMPED FOR",
        ">TIMES DAMPED",
    ];
    let seconds = |seconds: Option<f64>| or_dash(seconds.map(|seconds| format!("{seconds:.0}s")));
    let mut table = Table::new(&headings, "no port has BFD, continuity checks or flap damping");
    for PortOam { port, oam } in list {
        let bfd = oam.bfd.as_ref();
        let ccm = oam.ccm.as_ref();
        let damping = oam.damping.as_ref();
        let flaps = bfd.map_or(0, |bfd| bfd.flaps) + ccm.map_or(0, |ccm| ccm.flaps);
        table.row([
            port.clone(),
            if oam.live { "yes" } else { "no" }.to_owned(),
            seconds(oam.restores_in_s),
            or_dash(bfd.map(|bfd| bfd.state.clone())),
            or_dash(bfd.map(|bfd| bfd.remote_state.clone())),
            or_dash(bfd.map(|bfd| bfd.diagnostic.clone())),
            or_dash(bfd.map(|bfd| format!("{:.0}ms", bfd.detection_time_ms))),
            or_dash(ccm.map(|ccm| match (ccm.up, ccm.rdi) {
                (true, _) => "up",
                (false, true) => "remote defect",
                (false, false) => "down",
            })),
            or_dash(ccm.and_then(|ccm| ccm.remote_mep)),
            flaps.to_string(),
            seconds(damping.and_then(|damping| damping.remaining_s)),
            or_dash(damping.map(|damping| damping.times)),
        ]);
    }
    table
}
