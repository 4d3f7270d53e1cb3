//! The queues of ports: configuration (OpenFlow 1.3.5, section 7.3.6) and statistics (section 7.3.5.8).

use millrace_datapath::io::Backend;
use millrace_datapath::schedule::QueueStatus;
use millrace_model::Rate;
use millrace_openflow::multipart::queue::{QueueStats, QueueStatsRequest};
use millrace_openflow::{ErrorCode, PacketQueue, QueueGetConfigReply, QueueGetConfigRequest};
use millrace_types::{PortNo, QueueId};

use super::ports;
use crate::control::{BridgeControl, PortStatus};

/// `OFPQ_MIN_RATE_UNCFG` and `OFPQ_MAX_RATE_UNCFG`: the rate is not configured, or the speed of the port is unknown.
const UNCONFIGURED: u16 = 0xffff;
/// The maximum number of queues in a QUEUE_GET_CONFIG reply, which is a single message: a header of 16 bytes,
/// and 48 bytes for each queue.
const QUEUES_MAX: usize = (u16::MAX as usize - 16) / 48;

/// Returns the queues of the selected ports, in order.
fn selected<B: Backend>(
    bridge: &BridgeControl<B>,
    port: PortNo,
) -> Result<Vec<(&PortStatus, QueueStatus)>, ErrorCode> {
    let ports = ports::selected(bridge, port).ok_or(ErrorCode::OFPQOFC_BAD_PORT)?;
    let queues = ports.into_iter().flat_map(|status| {
        let queues = bridge.datapath.queues(status.model.number);
        queues.into_iter().map(move |queue| (status, queue))
    });
    Ok(queues.collect())
}

/// Returns the counters of the selected queues.
pub(super) fn stats<B: Backend>(
    bridge: &BridgeControl<B>,
    asked: QueueStatsRequest,
) -> Result<Vec<QueueStats>, ErrorCode> {
    let now = bridge.datapath.now();
    let is_selected = |queue: &QueueStatus| asked.queue == QueueId::ALL || queue.id == asked.queue;
    let found = selected(bridge, asked.port)?
        .into_iter()
        .filter(|(_, queue)| is_selected(queue));
    let stats: Vec<QueueStats> = found
        .map(|(status, queue)| QueueStats {
            port: status.model.number,
            queue: queue.id,
            tx_bytes: queue.stats.tx_bytes,
            tx_packets: queue.stats.tx_packets,
            tx_errors: queue.stats.dropped,
            duration: now.since(queue.since),
        })
        .collect();
    if stats.is_empty() && asked.queue != QueueId::ALL {
        return Err(ErrorCode::OFPQOFC_BAD_QUEUE);
    }
    Ok(stats)
}

/// Returns the configuration of the queues of a port, or of all ports.
pub(super) fn config<B: Backend>(
    bridge: &BridgeControl<B>,
    asked: QueueGetConfigRequest,
) -> Result<QueueGetConfigReply, ErrorCode> {
    let found = selected(bridge, asked.port)?.into_iter().take(QUEUES_MAX);
    let queues = found.map(|(status, queue)| {
        let given = status
            .model
            .egress_queues
            .iter()
            .find(|given| given.id == queue.id);
        let speed_mbps = status.info.speed_mbps;
        PacketQueue {
            queue: queue.id,
            port: status.model.number,
            min_rate: Some(share(given.and_then(|given| given.min_rate), speed_mbps)),
            max_rate: Some(share(given.and_then(|given| given.max_rate), speed_mbps)),
        }
    });
    Ok(QueueGetConfigReply {
        port: asked.port,
        queues: queues.collect(),
    })
}

/// Returns a rate in tenths of a per cent of the port's current speed, rounded, 1 to 1,000.
fn share(rate: Option<Rate>, speed_mbps: Option<u32>) -> u16 {
    let (Some(rate), Some(speed)) = (rate, speed_mbps.filter(|speed| *speed > 0)) else {
        return UNCONFIGURED;
    };
    // A thousandth of the port's speed, in bit/s.
    let part = u64::from(speed) * 1_000;
    let parts = (rate.get().bps() + part / 2) / part;
    parts.clamp(1, 1_000) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_shares_of_the_speed_if_both_are_known() {
        let rate = |text: &str| Some(text.parse::<Rate>().unwrap());
        assert_eq!(share(rate("50Mbps"), Some(1_000)), 50);
        assert_eq!(share(rate("333Mbps"), Some(10_000)), 33);
        assert_eq!(share(rate("1kbps"), Some(100_000)), 1);
        assert_eq!(share(rate("20Gbps"), Some(10_000)), 1_000);
        for (rate, speed) in [(None, Some(10)), (rate("1Mbps"), None), (rate("1Mbps"), Some(0))] {
            assert_eq!(share(rate, speed), 0xffff);
        }
    }
}
