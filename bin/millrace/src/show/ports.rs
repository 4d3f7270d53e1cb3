//! `millrace show ports`.

use millrace_api::view;

use crate::human::{bps, or_dash, port, short};
use crate::table::Table;

fn port_state(port: &view::Port) -> &'static str {
    let is_damped = port
        .oam
        .as_ref()
        .and_then(|oam| oam.damping.as_ref())
        .is_some_and(|damping| damping.remaining_s.is_some());
    let is_live = port.oam.as_ref().is_none_or(|oam| oam.live);
    match (port.admin, port.link) {
        (view::AdminState::Down, _) => "off",
        (_, view::LinkState::Down) if is_damped => "damped",
        (_, view::LinkState::Up) if !is_live => "not live",
        (_, view::LinkState::Up) => "up",
        (_, view::LinkState::Down) => "no link",
        (_, view::LinkState::Missing) => "missing",
    }
}

/// Returns the table of ports, followed by advice for ports that forward partial checksums.
pub(super) fn advised_ports(list: &[view::Port]) -> String {
    let mut text = ports(list).to_string();
    for line in crate::doctor::advice(list) {
        text += &format!("{line}\n");
    }
    text
}

fn ports(list: &[view::Port]) -> Table {
    let mut table = Table::new(
        &[
            ">NO",
            "PORT",
            "STATE",
            ">SPEED",
            ">RX PACKETS",
            ">RX PPS",
            ">RX BPS",
            ">TX PACKETS",
            ">TX PPS",
            ">TX BPS",
            ">DROPS",
            ">ERRORS",
            "DEVICE",
            "DRIVER",
            ">QUEUES",
            "RSS",
            "SPREAD",
            "OFFLOAD",
        ],
        "no port",
    );
    for given in list {
        let rate = |pick: fn(&view::Rates) -> f64| given.rates.as_ref().map(pick);
        table.row([
            port(given.number),
            given.name.clone(),
            port_state(given).to_owned(),
            or_dash(given.speed_bps.map(|speed| bps(speed as f64))),
            given.rx.packets.to_string(),
            or_dash(rate(|rates| rates.rx_pps).map(short)),
            or_dash(rate(|rates| rates.rx_bps).map(short)),
            given.tx.packets.to_string(),
            or_dash(rate(|rates| rates.tx_pps).map(short)),
            or_dash(rate(|rates| rates.tx_bps).map(short)),
            (given.rx.drops + given.tx.drops).to_string(),
            (given.rx.errors + given.tx.errors).to_string(),
            given.device.clone(),
            or_dash(given.driver.as_ref()),
            given.rx_queues.to_string(),
            or_dash(given.rss.as_ref()),
            // The numbers of RETA buckets, by worker.
            or_dash((!given.spread.is_empty()).then(|| {
                let buckets: Vec<_> = given.spread.iter().map(ToString::to_string).collect();
                buckets.join("/")
            })),
            or_dash(given.offload.as_ref()),
        ]);
    }
    table
}
