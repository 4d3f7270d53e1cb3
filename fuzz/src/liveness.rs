//! Frames and datagrams that anybody can send: BFD, continuity checks, sFlow.

use millrace_oam::{bfd, ccm};
use millrace_sflow::Datagram;
use millrace_types::{Duration, Time};

/// Feeds a BFD session and a maintenance end point: each chunk of 76 bytes is a packet after a byte that advances the time.
///
/// Properties: a session that is polled at its deadline makes progress; it sends valid packets.
pub(crate) fn oam(bytes: &[u8]) {
    let settings = bfd::Settings {
        min_tx: Duration::from_millis(50),
        min_rx: Duration::from_millis(50),
        multiplier: 3,
    };
    let mut session = bfd::Session::new(settings, 1, Time::ZERO);
    let mut mep = ccm::Mep::new(
        ccm::Settings {
            mep: 1,
            remote_mep: None,
            level: 0,
            maid: ccm::Maid::new("ovs", "ovs").unwrap(),
            interval: ccm::Interval::Ms100,
        },
        Time::ZERO,
    );
    let mut now = Time::ZERO;
    for chunk in bytes.chunks(76) {
        now = now + Duration::from_millis(u64::from(chunk[0]) * 10);
        session.receive(&chunk[1..], now);
        mep.receive(&chunk[1..], now);
        // A packet, and the answer to a poll.
        for _ in 0..3 {
            if let Some(packet) = session.poll(now, now) {
                assert_eq!(bfd::Packet::parse(&packet.emit()), Some(packet));
            }
            mep.poll(now, now);
        }
        assert!(session.poll(now, now).is_none());
        assert!(session.deadline().is_none_or(|deadline| deadline > now));
        assert!(mep.deadline() > now);
    }
}

/// Parses a datagram; what is parsed is emitted and parsed to the same value, as far as it is emitted.
pub(crate) fn sflow(bytes: &[u8]) {
    let Ok(mut datagram) = Datagram::parse(bytes) else {
        return;
    };
    datagram.skipped = 0;
    let again = Datagram::parse(&datagram.emit()).unwrap();
    assert_eq!(again.samples.len(), datagram.samples.len());
}
