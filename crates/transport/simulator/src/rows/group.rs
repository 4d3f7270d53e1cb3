//! T4 and T5: ten receivers of one group, with a slow one, a stopped one, and a late one. These sessions move
//! bytes.

use super::{Gate, Measured, RowError, Size};
use crate::LinkSpec;
use crate::session::{Change, Session, SessionSpec, Site};
use millrace_transport::extent::{ExtentSize, Layout};
use millrace_transport::flow::USUAL_MTU;
use millrace_types::{BitRate, Duration, Time};
use millrace_wan_emulator::PathConfig;

/// Bytes of payload of a full packet.
const PAYLOAD: u16 = 1_424;
/// The time after which an incomplete session is stopped.
const LIMIT: Duration = Duration::from_secs(120);

fn site(forward: PathConfig, delay: &str) -> Result<Site, RowError> {
    Ok(Site {
        forward,
        return_path: LinkSpec::new(&[("delay", delay)])?.path,
        handshake_rtt: None,
        joins: Time::ZERO,
        pool: 8 << 20,
        disk: 1 << 30,
        crashes: None,
        forges_acks_from: None,
    })
}

/// The results of a session: the time at which each site had all bytes, the seals, and the packets.
struct Ended {
    done: Vec<Option<Time>>,
    seals: u64,
    packets: u64,
}

/// Runs a session. The sites in `must` have to be complete at the end.
fn run(
    case: &str,
    bytes: u64,
    uplink: Option<BitRate>,
    sites: Vec<Site>,
    changes: Vec<Change>,
    must: std::ops::Range<usize>,
) -> Result<Ended, RowError> {
    let failed = |problem: String| RowError::Session {
        case: case.to_owned(),
        problem,
    };
    let count = sites.len();
    let layout = Layout::new(bytes, ExtentSize::Small).map_err(|error| failed(error.to_string()))?;
    let mut session = Session::new(SessionSpec {
        seed: 23,
        layout,
        payload: PAYLOAD,
        mtu: USUAL_MTU,
        cache: 8 << 20,
        uplink,
        sites,
        changes,
    })?;
    let complete = session.run_until(Time::ZERO + LIMIT);
    // A stopped site is never complete, but its balances are checked, too.
    match session.check() {
        Err(problem) if complete || !problem.contains("not complete") => return Err(failed(problem)),
        _ => {}
    }
    let done: Vec<Option<Time>> = (0..count).map(|site| session.outcome(site).0).collect();
    if done[must].contains(&None) {
        return Err(RowError::Never {
            case: case.to_owned(),
            seconds: LIMIT.as_secs(),
        });
    }
    Ok(Ended {
        done,
        seals: session.seals(),
        packets: session.packets(),
    })
}

/// Measures row T4 of docs/gates.md: the slowest of ten receivers, and the work that they share.
pub(super) fn ten_receivers(size: Size, report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    let bytes = if size == Size::Full { 32 << 20 } else { 6 << 20 };
    for (name, rate, uplink) in [
        ("20 Mbit/s each", "20Mbps", None),
        (
            "--rate of half their sum",
            "20Mbps",
            Some(BitRate::from_kbps(100_000)),
        ),
    ] {
        let case = format!("T4 ten receivers, RTT 100 ms, loss 1 %, {name}");
        let forward = LinkSpec::new(&[("rate", rate), ("delay", "50ms"), ("loss", "1%")])?.path;
        let sites = (0..10)
            .map(|_| site(forward.clone(), "50ms"))
            .collect::<Result<Vec<_>, _>>()?;
        let ended = run(&case, bytes, uplink, sites, Vec::new(), 0..10)?;
        let rates: Vec<f64> = ended
            .done
            .iter()
            .flatten()
            .map(|at| 1.0 / at.since(Time::ZERO).as_secs_f64())
            .collect();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let measured = |quantity: &str, gate, reached, packets| Measured {
            case: format!("{case}: {quantity}"),
            conditions: format!("{} MiB", bytes >> 20),
            gate,
            target: None,
            reached,
            unit: "",
            packets,
        };
        report(measured(
            "slowest / mean",
            Gate::AtLeast(0.9),
            slowest / mean,
            ended.packets,
        ));
        let unique = bytes as f64 / f64::from(PAYLOAD);
        report(measured(
            "seals / unique packets",
            Gate::AtMost(1.05),
            ended.seals as f64 / unique,
            0,
        ));
    }
    Ok(())
}

/// Measures row T5: receivers together with one that is slow, stopped or late.
pub(super) fn stragglers(report: &mut dyn FnMut(Measured)) -> Result<(), RowError> {
    let bytes = 16 << 20;
    let path = |rate: &str| LinkSpec::new(&[("rate", rate), ("delay", "20ms"), ("loss", "0.5%")]);
    let clean = path("50Mbps")?.path;
    let two = || -> Result<Vec<Site>, RowError> {
        Ok(vec![site(clean.clone(), "20ms")?, site(clean.clone(), "20ms")?])
    };
    let last = |ended: &Ended| {
        let others = ended.done[..2].iter().flatten();
        others
            .map(|at| at.since(Time::ZERO).as_secs_f64())
            .fold(0.0, f64::max)
    };
    let alone = run("T5 two receivers", bytes, None, two()?, Vec::new(), 0..2)?;
    let mut lost = clean.clone();
    lost.set("loss", "100%")?;
    let slow_disk = Site {
        disk: 625_000,
        ..site(clean.clone(), "20ms")?
    };
    let stopped_disk = Site {
        disk: 0,
        ..site(clean.clone(), "20ms")?
    };
    let half = last(&alone) / 2.0;
    let late = Site {
        joins: Time::ZERO + Duration::from_secs_f64(half),
        ..site(clean.clone(), "20ms")?
    };
    let vanishes = Change {
        at: Time::from_millis(500),
        site: 2,
        forward: lost,
    };
    let cases = [
        ("path of R/10", site(path("5Mbps")?.path, "20ms")?, vec![]),
        ("disk of R/10", slow_disk, vec![]),
        ("disk that stops", stopped_disk, vec![]),
        ("path that ends", site(clean.clone(), "20ms")?, vec![vanishes]),
        ("one that joins at half", late, vec![]),
    ];
    for (name, third, changes) in cases {
        let case = format!("T5 beside a receiver, {name}: time of the others");
        let mut sites = two()?;
        sites.push(third);
        let ended = run(&case, bytes, None, sites, changes, 0..2)?;
        report(Measured {
            case,
            conditions: "16 MiB to two at 50 Mbit/s, RTT 40 ms, loss 0.5 %".to_owned(),
            gate: Gate::AtMost(1.03),
            target: None,
            reached: last(&ended) / last(&alone),
            unit: "",
            packets: ended.packets,
        });
    }
    Ok(())
}
