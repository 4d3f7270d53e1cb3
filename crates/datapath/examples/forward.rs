//! One worker, one bridge, DPDK devices: how many packets a second? For profiling; `millrace bench` measures
//! the whole daemon beside its peers.
//!
//! ```text
//! forward RX_DEVARGS TX_DEVARGS [SECONDS]
//! ```

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_datapath::io::dpdk::DpdkBackend;
use millrace_datapath::io::{DeviceOptions, DeviceSpec};
use millrace_datapath::{BridgeSetup, Datapath, Idle, Workers};
use millrace_dpdk::{Eal, EalConfig};
use millrace_flow::{Action, Field, Instructions, Match};
use millrace_pipeline::{Control, ControlConfig, FlowMod, FlowModCommand, Port};
use millrace_types::{PortNo, Priority, TableId, Time};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rx, tx, rest @ ..] = &arguments[..] else {
        return Err("usage: forward RX_DEVARGS TX_DEVARGS [SECONDS]".into());
    };
    let seconds: u64 = rest.first().map_or(Ok(5), |text| text.parse())?;
    let eal = Eal::init(&EalConfig {
        file_prefix: "forward".into(),
        ..EalConfig::default()
    })?;
    let backend = Arc::new(DpdkBackend::new(eal, (1 << 16) - 1)?);
    let datapath = Datapath::start(
        backend,
        &Workers {
            cores: vec![Some(1)],
            idle: Idle::Busy,
        },
    )?;
    let mut control = Control::new(ControlConfig {
        tables: 4,
        ..ControlConfig::default()
    });
    let counters = vec![control.counters(), control.counters()];
    let setup = BridgeSetup {
        forwarding: [control.forwarding(), control.forwarding()],
        counters,
    };
    let mut bridge = datapath.bridge(setup)?;
    let mut ops = Vec::new();
    let (one, two) = (PortNo::ordinary(1)?, PortNo::ordinary(2)?);
    let mut request = FlowMod::new(
        FlowModCommand::Add,
        TableId(0),
        Priority(1),
        Match::exact(&[(Field::InPort, 1)])?,
    );
    request.instructions = Instructions::apply([Action::output(two)]);
    control
        .flow_mod(request, Time::ZERO, &mut ops)
        .map_err(|error| format!("{error:?}"))?;
    for (port, device) in [(two, tx), (one, rx)] {
        control.set_port(Port::new(port), &mut ops);
        bridge.publish(&mut ops);
        bridge.add_port(
            port,
            &DeviceSpec::Vdev(device.clone()),
            DeviceOptions { queues: 1, mtu: 1500 },
        )?;
    }
    let sent = || bridge.port_stats(two).map_or(0, |stats| stats.tx_packets);
    for _ in 0..seconds {
        let (before, since) = (sent(), Instant::now());
        std::thread::sleep(Duration::from_secs(1));
        println!(
            "{:.2} Mpps",
            (sent() - before) as f64 / since.elapsed().as_secs_f64() / 1e6
        );
    }
    drop(bridge);
    drop(datapath);
    eal.give_back();
    Ok(())
}
