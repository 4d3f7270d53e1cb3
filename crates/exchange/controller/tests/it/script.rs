//! A scripted switch: messages to a connection, and the messages that the connection sends.

use millrace_controller::{Connection, Outcome, Progress, Settings};
use millrace_flow::{Action, Field, Instructions, Match};
use millrace_openflow::multipart::flow::FlowStats;
use millrace_openflow::multipart::{MultipartReply, MultipartRequest, MultipartType, ReplyBody};
use millrace_openflow::*;
use millrace_types::*;

pub(crate) struct Script {
    pub(crate) connection: Connection,
    pub(crate) now: Time,
}

impl Script {
    /// Returns a connection after its handshake.
    pub(crate) fn ready(settings: Settings) -> Script {
        let mut script = Script {
            connection: Connection::new(settings, Time::ZERO),
            now: Time::ZERO,
        };
        let sent = script.sent();
        assert_eq!(sent[0].1, Message::Hello(Hello::OURS));
        script.say(Xid(7), &Message::Hello(Hello::OURS));
        assert_eq!(script.progress(), []);
        let (xid, asked) = script.sent().remove(0);
        assert_eq!(asked, Message::FeaturesRequest);
        let features = features();
        script.say(xid, &Message::FeaturesReply(features));
        assert_eq!(script.progress(), [Progress::Ready(features)]);
        script
    }

    /// Returns the messages that the connection has sent since the last call.
    pub(crate) fn sent(&mut self) -> Vec<(Xid, Message)> {
        let mut messages = Vec::new();
        loop {
            let mut bytes = self.connection.output();
            let size = bytes.len();
            if size == 0 {
                return messages;
            }
            while let Some(header) = Header::parse(bytes) {
                let (message, rest) = bytes.split_at(header.length.into());
                messages.push((header.xid, decode(message).unwrap().1));
                bytes = rest;
            }
            self.connection.wrote(size, self.now);
            // The output is empty now, so an operation may continue.
            assert_eq!(self.progress(), []);
        }
    }

    /// Sends a message to the connection.
    pub(crate) fn say(&mut self, xid: Xid, message: &Message) {
        let mut bytes = Vec::new();
        encode(message, xid, &mut bytes).unwrap();
        self.connection.receive(&bytes, self.now);
    }

    pub(crate) fn refuse(&mut self, xid: Xid, code: ErrorCode) {
        let error = ErrorMessage {
            code,
            data: Box::default(),
        };
        self.say(xid, &Message::Error(error));
    }

    pub(crate) fn progress(&mut self) -> Vec<Progress> {
        let mut all = Vec::new();
        while let Some(progress) = self.connection.poll(self.now) {
            all.push(progress);
        }
        all
    }

    /// Returns the outcome of an operation, which must be the only progress; `None` if there is none.
    pub(crate) fn outcome(&mut self) -> Option<Outcome> {
        let mut progress = self.progress();
        match progress.pop() {
            Some(Progress::Done(_, outcome)) => {
                assert_eq!(progress, []);
                Some(outcome)
            }
            Some(other) => panic!("{other:?}"),
            None => None,
        }
    }

    /// Replies to the only request that was sent, which must be a multipart request of this type.
    pub(crate) fn reply(&mut self, type_: MultipartType, replies: Vec<MultipartReply>) -> Xid {
        let xid = self.asked(type_);
        for reply in replies {
            self.say(xid, &Message::MultipartReply(reply));
        }
        xid
    }

    /// Returns the xid of the only request that was sent, which must be a multipart request of this type.
    pub(crate) fn asked(&mut self, type_: MultipartType) -> Xid {
        assert_eq!(self.progress(), []);
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        match sent.remove(0) {
            (xid, Message::MultipartRequest(MultipartRequest { body, .. })) => {
                assert_eq!(body.type_(), type_);
                xid
            }
            other => panic!("{other:?}"),
        }
    }

    /// Replies to the listings before that of flow entries with empty lists. Returns the xid of the request
    /// for flow entries.
    pub(crate) fn reply_until_flows(&mut self) -> Xid {
        self.reply(
            MultipartType::PortDesc,
            vec![MultipartReply::new(ReplyBody::PortDesc(vec![]))],
        );
        let meters = MultipartReply::new(ReplyBody::MeterConfig(vec![]));
        self.reply(MultipartType::MeterConfig, vec![meters]);
        let groups = MultipartReply::new(ReplyBody::GroupDesc(vec![]));
        self.reply(MultipartType::GroupDesc, vec![groups]);
        self.asked(MultipartType::Flow)
    }
}

pub(crate) fn features() -> SwitchFeatures {
    SwitchFeatures {
        dpid: Dpid(0x77),
        buffers: 0,
        tables: 20,
        auxiliary_id: 0,
        capabilities: Capabilities::FLOW_STATS,
    }
}

/// Returns a port as a switch describes it.
pub(crate) fn port(state: PortState) -> Port {
    Port {
        number: PortNo::from_raw(1),
        mac: Mac([2, 0, 0, 0, 0, 1]),
        name: "p1".to_owned(),
        config: PortConfig::NONE,
        state,
        current: PortFeatures::NONE,
        advertised: PortFeatures::NONE,
        supported: PortFeatures::NONE,
        peer: PortFeatures::NONE,
        current_speed: 0,
        max_speed: 0,
    }
}

/// Returns a flow entry as a switch lists it.
pub(crate) fn listed(number: u32) -> FlowStats {
    FlowStats {
        table: TableId(0),
        duration: Duration::from_secs(1),
        priority: Priority(5),
        idle_timeout: 0,
        hard_timeout: 0,
        flags: FlowModFlags::NONE,
        cookie: Cookie(u64::from(number)),
        packets: 1,
        bytes: 64,
        match_: Match::exact(&[(Field::EthType, 0x800), (Field::Ipv4Dst, number.into())]).unwrap(),
        instructions: Instructions::apply([Action::output(PortNo::from_raw(2))]),
    }
}

/// Returns the flow_mod that adds an entry.
pub(crate) fn add(number: u32) -> Message {
    Message::FlowMod(added(number))
}

pub(crate) fn added(number: u32) -> FlowMod {
    let entry = listed(number);
    FlowMod {
        cookie: entry.cookie,
        ..FlowMod::add(entry.table, entry.priority, entry.match_, entry.instructions)
    }
}

pub(crate) fn meter(number: u32, command: MeterModCommand) -> Message {
    Message::MeterMod(MeterMod {
        command,
        flags: MeterFlags::KBPS,
        meter: MeterId(number),
        bands: [MeterBand {
            rate: 10_000,
            burst_size: 0,
            kind: MeterBandKind::Drop,
        }]
        .into(),
    })
}
