//! Workers as the REST API shows them: the queues that each polls, and its load.

use std::time::Instant;

use millrace_api::view;
use millrace_datapath::WorkerStats;
use millrace_types::PortNo;

/// The busy share of each worker between the last two measurements.
#[derive(Default)]
pub(super) struct Load {
    measured: Option<Instant>,
    busy_nanos: Vec<u64>,
    shares: Vec<f64>,
}

impl Load {
    /// Updates the busy shares of the workers for the time since the last measurement.
    pub(super) fn measure(&mut self, stats: &[WorkerStats], now: Instant) {
        let elapsed = self.measured.map(|measured| now.duration_since(measured));
        if let Some(elapsed) = elapsed.filter(|elapsed| !elapsed.is_zero()) {
            let share = |(i, worker): (usize, &WorkerStats)| {
                let before = self.busy_nanos.get(i).copied().unwrap_or(worker.busy_nanos);
                (worker.busy_nanos.saturating_sub(before) as f64 / elapsed.as_nanos() as f64).min(1.0)
            };
            self.shares = stats.iter().enumerate().map(share).collect();
        }
        self.busy_nanos = stats.iter().map(|worker| worker.busy_nanos).collect();
        self.measured = Some(now);
    }

    /// Returns the shares of `len` workers; zero before there are two measurements.
    pub(super) fn shares(&self, len: usize) -> Vec<f64> {
        let mut shares = self.shares.clone();
        shares.resize(len, 0.0);
        shares
    }
}

/// The name of a bridge, and the worker, port and queue of each polled receive queue.
pub(super) type Polled = (String, Vec<(usize, PortNo, u16)>);

/// Returns the view of a worker, which was `busy` for a share of the last second.
pub(super) fn worker(
    stats: &WorkerStats,
    busy: f64,
    polled: &[Polled],
    ports: &[(String, PortNo, String)],
) -> view::Worker {
    let name = |bridge: &str, number: PortNo| {
        let known = ports.iter().find(|(of, port, _)| of == bridge && *port == number);
        known.map_or_else(|| number.to_string(), |(_, _, name)| name.clone())
    };
    let queues = polled.iter().flat_map(|(bridge, queues)| {
        let mine = queues.iter().filter(|(worker, _, _)| *worker == stats.worker);
        mine.map(|(_, port, queue)| view::Queue {
            bridge: bridge.clone(),
            port: name(bridge, *port),
            queue: *queue,
        })
    });
    view::Worker {
        id: stats.worker as u32,
        core: stats.core.map(|core| core as u32),
        queues: queues.collect(),
        packets: stats.packets,
        handed_off: stats.handed_off,
        bursts: stats.busy_polls,
        busy,
        sleeps: stats.sleeps,
        cycles_per_packet: None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn stats(busy_millis: u64) -> [WorkerStats; 1] {
        [WorkerStats {
            worker: 0,
            core: None,
            polls: 0,
            busy_polls: 0,
            packets: 0,
            handed_off: 0,
            busy_nanos: busy_millis * 1_000_000,
            spread_nanos: 0,
            sleeps: 0,
            slept_nanos: 0,
            rx_queues: 1,
        }]
    }

    #[test]
    fn the_load_is_that_between_the_last_two_measurements_however_often_it_is_read() {
        let begin = Instant::now();
        let second = |seconds| begin + Duration::from_secs(seconds);
        let mut load = Load::default();
        assert_eq!(load.shares(1), [0.0]);
        load.measure(&stats(7_000), begin);
        assert_eq!(load.shares(1), [0.0]);
        load.measure(&stats(7_500), second(1));
        assert_eq!(load.shares(1), [0.5]);
        assert_eq!(load.shares(1), [0.5]);
        load.measure(&stats(7_500), second(2));
        assert_eq!(load.shares(1), [0.0]);
    }
}
