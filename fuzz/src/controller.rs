//! The controller side of OpenFlow: any bytes of a switch.

use millrace_controller::{Connection, DumpFilter, Outcome, Progress, Settings};
use millrace_flow::Match;
use millrace_openflow::{FlowMod, Header, Hello, Message, SwitchFeatures, decode, encode};
use millrace_types::{Dpid, TableId, Time, Xid};

const MAX_EVENTS_SIZE: usize = 1 << 16;

/// Feeds a connection: the first byte says if the handshake is complete; then the first byte of each chunk is its size and
/// chooses the operation that is submitted.
///
/// Properties: each operation has exactly one outcome; the output consists of complete messages and is bounded; a closed
/// connection makes no further progress; an operation that is not answered ends in time.
pub(crate) fn messages(bytes: &[u8]) {
    let Some((first, mut rest)) = bytes.split_first() else {
        return;
    };
    let settings = Settings {
        max_events_size: MAX_EVENTS_SIZE,
        max_dump_size: 1 << 18,
        ..Settings::default()
    };
    let mut fed = Fed {
        connection: Connection::new(settings, Time::ZERO),
        submitted: 0,
        outcomes: 0,
        is_closed: false,
    };
    if first % 2 == 0 {
        fed.shake_hands();
    }
    let mut now = Time::ZERO;
    while let Some((size, tail)) = rest.split_first() {
        let operation = match size % 4 {
            0 => fed.connection.dump(DumpFilter::ALL),
            1 => fed.connection.request(Message::BarrierRequest),
            2 => {
                let delete = FlowMod::delete(TableId::ALL, Match::any());
                fed.connection.commit(vec![Message::FlowMod(delete)])
            }
            _ => fed.connection.request(Message::FeaturesRequest),
        };
        fed.submitted += usize::from(operation.is_ok());
        let (chunk, tail) = tail.split_at(usize::from(*size).min(tail.len()));
        rest = tail;
        fed.connection.receive(chunk, now);
        fed.poll(now);
        if size % 5 != 0 {
            fed.write(now);
            fed.poll(now);
        }
        if size % 64 == 63 {
            now = now + settings.operation_timeout;
            fed.connection.tick(now);
            fed.poll(now);
        }
    }
    // Without a reply, every connection ends.
    for _ in 0..200 {
        if let Some(deadline) = fed.connection.deadline() {
            now = now.max(deadline);
        }
        fed.connection.tick(now);
        fed.poll(now);
    }
    assert!(fed.is_closed);
    assert_eq!(fed.outcomes, fed.submitted);
}

struct Fed {
    connection: Connection,
    submitted: usize,
    outcomes: usize,
    is_closed: bool,
}

impl Fed {
    fn shake_hands(&mut self) {
        let mut said = Vec::new();
        encode(&Message::Hello(Hello::OURS), Xid(1), &mut said).unwrap();
        let features = SwitchFeatures {
            dpid: Dpid(1),
            buffers: 0,
            tables: 1,
            auxiliary_id: 0,
            capabilities: millrace_openflow::Capabilities::NONE,
        };
        // HELLO has xid 1 and FEATURES_REQUEST xid 2.
        encode(&Message::FeaturesReply(features), Xid(2), &mut said).unwrap();
        self.connection.receive(&said, Time::ZERO);
        self.poll(Time::ZERO);
        assert!(self.connection.is_ready());
    }

    fn poll(&mut self, now: Time) {
        while let Some(progress) = self.connection.poll(now) {
            assert!(!self.is_closed);
            match progress {
                Progress::Done(_, outcome) => {
                    self.outcomes += 1;
                    check(outcome);
                }
                Progress::Closed(_) => self.is_closed = true,
                Progress::Ready(_) => {}
            }
        }
        assert!(self.connection.output().len() <= (1 << 20) + (1 << 18));
        if now.nanos().is_multiple_of(3) {
            while self.connection.poll_event().is_some() {}
        }
    }

    fn write(&mut self, now: Time) {
        let mut said = self.connection.output();
        let size = said.len();
        while !said.is_empty() {
            let size = usize::from(Header::parse(said).unwrap().length);
            decode(&said[..size]).unwrap();
            said = &said[size..];
        }
        self.connection.wrote(size, now);
    }
}

fn check(outcome: Outcome) {
    match outcome {
        // Errors are also printed, and entries indexed.
        Outcome::Dump(Ok(dump)) => {
            let _duplicate = dump.into_entries().map_err(|error| error.to_string());
        }
        Outcome::Dump(Err(error)) => drop(error.to_string()),
        Outcome::Commit(Err(error)) => drop(error.to_string()),
        Outcome::Reply(Err(error)) => drop(error.to_string()),
        Outcome::Commit(Ok(())) | Outcome::Reply(Ok(_)) => {}
    }
}
