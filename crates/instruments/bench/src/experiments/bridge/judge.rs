//! Counts what a bridge did with frames to addresses that it should know, and with broadcast frames.

use super::frames::{LEARNING, TEST};
use crate::generate::End;

/// The port where no frame to a learned address may leave (RFC 2889, section 5.7: Mport).
const MONITOR: u32 = 3;

/// The result of a run that sent one frame to each of some addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Frames that left by the learning port alone: the bridge holds their addresses.
    pub(super) held: u64,
    /// Frames that left by more than one port.
    pub(super) flooded: u64,
    /// Frames that left by another port and not by the learning port.
    pub(super) astray: u64,
    /// Frames that did not leave.
    pub(super) lost: u64,
}

impl Verdict {
    /// Returns the verdict on a run that sent one frame to each of `len` addresses.
    ///
    /// The generator receives a flooded frame twice: the first copy counts for its port, the other as a duplicate.
    pub(super) fn of(end: &End, len: usize) -> Verdict {
        let len = len as u64;
        let counters = &end.counters;
        let [learning, monitor, test] = [LEARNING, MONITOR, TEST].map(|port| by_port(end, port));
        let flooded = counters.duplicated.min(len);
        let elsewhere = monitor + test;
        // Either copy of a flooded frame may arrive first. Each copy at another port beyond the number of duplicates
        // is a frame that went astray.
        let astray = elsewhere.saturating_sub(flooded);
        let held = (learning + elsewhere).saturating_sub(flooded + astray).min(len);
        Verdict {
            held,
            flooded,
            astray,
            lost: len.saturating_sub(held + flooded + astray),
        }
    }

    /// Returns true if the bridge holds all addresses.
    pub(super) fn is_passed(&self, len: usize) -> bool {
        self.held == len as u64 && self.flooded == 0 && self.astray == 0
    }
}

fn by_port(end: &End, port: u32) -> u64 {
    let device = port as usize - 1;
    end.counters.received_by.get(device).copied().unwrap_or(0)
}

/// Returns the share of broadcast frames that did not return as exactly two copies, one from each of the two other
/// ports.
pub(super) fn broadcast_loss(end: &End) -> f64 {
    let offered = end.counters.sent + end.counters.refused;
    let copies = end.counters.received + end.counters.duplicated;
    let wrong = (2 * offered).abs_diff(copies) + 2 * by_port(end, TEST);
    wrong as f64 / ((2 * offered) as f64).max(1.0)
}

/// Returns the percentage of the offered frames that left by the learning port.
pub(super) fn forwarded_percent(end: &End) -> f64 {
    let offered = end.counters.sent + end.counters.refused;
    by_port(end, LEARNING) as f64 / (offered as f64).max(1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Counters;

    /// Returns the result of 100 frames: first copies at ports 1 to 3, and duplicates.
    fn end(by: [u64; 3], duplicated: u64) -> End {
        End {
            counters: Counters {
                sent: 98,
                refused: 2,
                received: by.iter().sum(),
                duplicated,
                received_by: [by[0], by[1], by[2], 0, 0, 0, 0, 0],
                ..Counters::default()
            },
            ..End::default()
        }
    }

    fn verdict(by: [u64; 3], duplicated: u64) -> [u64; 4] {
        let Verdict {
            held,
            flooded,
            astray,
            lost,
        } = Verdict::of(&end(by, duplicated), 100);
        [held, flooded, astray, lost]
    }

    #[test]
    fn addresses_are_held_whose_frames_come_out_of_the_learning_port_only() {
        assert_eq!(verdict([0, 100, 0], 0), [100, 0, 0, 0]);
        assert!(Verdict::of(&end([0, 100, 0], 0), 100).is_passed(100));
        assert_eq!(verdict([0, 97, 0], 0), [97, 0, 0, 3]);
    }

    #[test]
    fn a_flooded_frame_is_detected_whichever_copy_arrives_first() {
        assert_eq!(verdict([0, 100, 0], 10), [90, 10, 0, 0]);
        assert_eq!(verdict([0, 90, 10], 10), [90, 10, 0, 0]);
        assert_eq!(verdict([0, 94, 6], 10), [90, 10, 0, 0]);
        assert!(!Verdict::of(&end([0, 100, 0], 1), 100).is_passed(100));
    }

    #[test]
    fn a_frame_at_another_port_alone_has_gone_astray() {
        assert_eq!(verdict([0, 99, 1], 0), [99, 0, 1, 0]);
        assert_eq!(verdict([1, 99, 0], 0), [99, 0, 1, 0]);
    }

    #[test]
    fn a_broadcast_frame_is_to_come_out_of_each_other_port_once() {
        assert!(broadcast_loss(&end([0, 60, 40], 100)) == 0.0);
        assert!((broadcast_loss(&end([0, 60, 40], 99)) - 0.005).abs() < 1e-9);
        assert!(broadcast_loss(&end([0, 60, 40], 101)) > 0.0);
        assert!(broadcast_loss(&end([1, 59, 40], 100)) > 0.0);
    }

    #[test]
    fn errored_frames_are_filtered_or_not() {
        assert!(forwarded_percent(&end([0, 0, 0], 0)) == 0.0);
        assert!((forwarded_percent(&end([0, 50, 0], 0)) - 50.0).abs() < 1e-9);
    }
}
