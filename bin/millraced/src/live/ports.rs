//! Ports, from the agent's values to those of REST.

use millrace_agent::BridgeControl;
use millrace_api::server::PortCounters;
use millrace_api::view;
use millrace_datapath::io::Backend;
use millrace_datapath::spread::SpreadStats;
use millrace_pipeline::{PortConfig, PortState};
use millrace_types::PortNo;

use super::{lldp, oam, offload, queues, rstp};

/// Returns the running ports of a bridge, in order of numbers.
pub(super) fn running<B: Backend>(control: &mut BridgeControl<B>) -> Vec<view::Port> {
    let bridge = control.config().name.to_string();
    let control = &*control;
    let datapath = control.datapath();
    let show = |(number, port): (&PortNo, &millrace_agent::control::PortStatus)| {
        let (rx, tx) = counters_of(control, *number);
        view::Port {
            bridge: bridge.clone(),
            name: port.model.name.to_string(),
            number: number.raw(),
            device: port.model.device.to_string(),
            driver: Some(port.info.driver.clone()),
            rx_queues: port.info.rx_queues,
            rss: port.info.rss.clone(),
            offload: port.info.offload.clone(),
            spread: spread(&datapath.spread(*number)),
            mac: port.info.mac.to_string(),
            admin: if port.config.has(PortConfig::DOWN) {
                view::AdminState::Down
            } else {
                view::AdminState::Up
            },
            link: if port.state.has(PortState::LINK_DOWN) {
                view::LinkState::Down
            } else {
                view::LinkState::Up
            },
            speed_bps: port.info.speed_mbps.map(|mbps| u64::from(mbps) * 1_000_000),
            mtu: port.info.mtu.into(),
            rx,
            tx,
            policer: queues::policer(control, *number, &port.model),
            offload_status: datapath.offload_status(*number).as_ref().map(offload::view),
            oam: control.oam_status(*number).as_ref().map(oam::view),
            lldp: control.lldp_status(*number).as_ref().map(lldp::view),
            rstp: rstp::view(control, *number),
            rates: None,
        }
    };
    control.ports().iter().map(show).collect()
}

/// Returns the counters of a port: what it received, and what it sent.
pub(crate) fn counters_of<B: Backend>(
    control: &BridgeControl<B>,
    number: PortNo,
) -> (view::Counters, view::Counters) {
    let (counted, device) = (control.port_stats(number), control.device_stats(number));
    let rx = view::Counters {
        packets: counted.rx_packets,
        bytes: counted.rx_bytes,
        drops: device.rx_missed + device.rx_no_buffer,
        errors: device.rx_errors,
    };
    let tx = view::Counters {
        packets: counted.tx_packets,
        bytes: counted.tx_bytes,
        drops: counted.tx_dropped,
        errors: device.tx_errors,
    };
    (rx, tx)
}

/// Returns the counters of the running ports of a bridge.
pub(super) fn counters<B: Backend>(control: &mut BridgeControl<B>) -> Vec<PortCounters> {
    let control = &*control;
    let of_port = |number: &PortNo| {
        let (rx, tx) = counters_of(control, *number);
        PortCounters {
            number: number.raw(),
            rx,
            tx,
        }
    };
    control.ports().keys().map(of_port).collect()
}

/// Returns the number of RETA buckets of each worker, over all queues with handoff.
fn spread(queues: &[SpreadStats]) -> Vec<u32> {
    let mut sum = Vec::new();
    for queue in queues.iter().filter(|queue| queue.is_on) {
        sum.resize(queue.buckets.len(), 0);
        for (sum, buckets) in sum.iter_mut().zip(&queue.buckets) {
            *sum += u32::try_from(*buckets).unwrap_or(u32::MAX);
        }
    }
    sum
}

/// Returns a configured port whose device could not be opened.
pub(super) fn missing(bridge: &str, port: &millrace_model::Port) -> view::Port {
    view::Port {
        bridge: bridge.to_owned(),
        name: port.name.to_string(),
        number: port.number.raw(),
        device: port.device.to_string(),
        driver: None,
        rx_queues: 0,
        rss: None,
        offload: None,
        spread: Vec::new(),
        mac: millrace_types::Mac::ZERO.to_string(),
        admin: if port.down {
            view::AdminState::Down
        } else {
            view::AdminState::Up
        },
        link: view::LinkState::Missing,
        speed_bps: None,
        mtu: port.mtu.get().into(),
        rx: view::Counters::default(),
        tx: view::Counters::default(),
        policer: None,
        offload_status: None,
        oam: None,
        lldp: None,
        rstp: None,
        rates: None,
    }
}
