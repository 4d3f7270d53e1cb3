//! Strategies for any event: every kind and protocol, with any bytes in every text.

use millrace_ips_engine::app::file::{FileHashes, FileState};
use millrace_ips_engine::app::record::*;
use millrace_ips_engine::app::{AppEvent, AppProtocol, FrameReport, FrameView};
use millrace_ips_engine::event::{
    Alert, AlertContext, Evidence, FileSummary, FlowEnd, FlowSummary, FlowVariables, PacketSource, RuleId,
    Subject, TcpState, TcpSummary, TransactionEvent, Tunnel,
};
use millrace_ips_engine::flow::{DirectionCounters, FlowKey, FlowState};
use millrace_ips_engine::packet::ArpPacket;
use millrace_ips_engine::packet::events::PacketEvents;
use millrace_ips_engine::verdict::DropReason;
use millrace_ips_engine::{Action, Cause, Direction, Event, FlowVerdict, Policy};
use millrace_ips_rules::buffers::Buffer;
use millrace_types::Time;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::{collection, option};

fn text() -> impl Strategy<Value = Vec<u8>> + Clone {
    collection::vec(any::<u8>(), 0..12)
}

fn texts() -> impl Strategy<Value = Vec<Vec<u8>>> {
    collection::vec(text(), 0..3)
}

fn maybe() -> impl Strategy<Value = Option<Vec<u8>>> {
    option::of(text())
}

fn time() -> impl Strategy<Value = Time> {
    any::<u64>().prop_map(Time::from_nanos)
}

prop_compose! {
    fn subject()(
        packet in any::<u64>(), time in time(), flow in 1..u64::MAX, ends in any::<(std::net::IpAddr, std::net::IpAddr)>(),
        ports in any::<Option<(u16, u16)>>(), protocol in any::<u8>(), icmp in any::<Option<(u8, u8)>>(), vlans in any::<[u16; 3]>(),
        source in select(PacketSource::ALL),
    ) -> Subject {
        Subject { packet, time, flow, src: ends.0, dst: ends.1, ports, protocol, icmp, vlans, source }
    }
}

prop_compose! {
    fn flow()(
        id in any::<u64>(), ends in any::<(std::net::IpAddr, std::net::IpAddr)>(), ports in any::<(u16, u16)>(),
        protocol in any::<u8>(), times in (time(), time()), numbers in any::<[u64; 4]>(), is_alerted in any::<bool>(),
        state in select(vec![FlowState::New, FlowState::Established, FlowState::Closed]), app in option::of(app()),
        verdict in select(vec![FlowVerdict::None, FlowVerdict::Pass, FlowVerdict::Drop, FlowVerdict::Bypass]),
        transactions in any::<u64>(), tcp in option::of(tcp()), apps in any::<[bool; 2]>(), icmp in any::<[Option<(u8, u8)>; 2]>(),
    ) -> FlowSummary {
        let apps = apps.map(|is_failed| if is_failed { Some(AppProtocol::Failed) } else { app });
        let key = FlowKey {
            client: ends.0, server: ends.1, client_port: ports.0, server_port: ports.1, protocol, vlans: [0; 3], tunnel_depth: 0,
        };
        let [a, b, c, d] = numbers;
        let counters = [(a, b), (c, d)].map(|(packets, bytes)| DirectionCounters { packets, bytes, min_ttl: packets as u8, max_ttl: bytes as u8 });
        FlowSummary { id, key, start: times.0, last: times.1, state, counters, app, apps, original_app: app, icmp, verdict, is_alerted, has_parser_error: is_alerted, transactions, tcp }
    }
}

fn tcp() -> impl Strategy<Value = TcpSummary> {
    use TcpState::{
        CloseWait, Closed, Closing, Established, FinWait1, FinWait2, LastAck, SynReceived, SynSent, TimeWait,
    };
    let state = option::of(select(vec![
        SynSent,
        SynReceived,
        Established,
        FinWait1,
        FinWait2,
        Closing,
        TimeWait,
        CloseWait,
        LastAck,
        Closed,
    ]));
    (any::<[u8; 2]>(), state, any::<[bool; 2]>(), any::<bool>()).prop_map(
        |(flags, state, has_gaps, is_midstream)| TcpSummary {
            flags,
            state,
            has_gaps,
            is_midstream,
        },
    )
}

prop_compose! {
    fn tunnel()(
        ends in any::<(std::net::IpAddr, std::net::IpAddr)>(), ports in any::<Option<(u16, u16)>>(), protocol in any::<u8>(), depth in 1..u8::MAX,
    ) -> Tunnel {
        Tunnel { src: ends.0, dst: ends.1, ports, protocol, depth }
    }
}

fn app() -> impl Strategy<Value = AppProtocol> {
    select(AppProtocol::ALL)
}

prop_compose! {
    fn file()(
        name in text(), size in any::<u64>(), state in select(vec![FileState::Open, FileState::Closed, FileState::Truncated]),
        has_gaps in any::<bool>(), magic in select(vec![None, Some("PDF document")]),
        hashes in option::of(any::<([u8; 16], [u8; 20], [u8; 32])>()), is_stored in any::<bool>(), is_joined in any::<bool>(),
    ) -> FileSummary {
        let hashes = hashes.map(|(md5, sha1, sha256)| FileHashes { md5, sha1, sha256 });
        FileSummary { direction: Direction::ToClient, name, size, state, has_gaps, magic, hashes, is_stored, is_joined }
    }
}

/// Returns fields with one value: a number if the text is empty.
fn pair(name: &'static str, value: &[u8]) -> Fields {
    let mut fields = Fields::default();
    match value {
        b"" => fields.number(name, 1_u32),
        value => fields.text(name, value),
    };
    fields
}

/// Returns the values of frames of HTTP/2.
fn http2_frames() -> impl Strategy<Value = Fields> {
    (any::<Option<u8>>(), any::<Option<u32>>()).prop_map(|(priority, setting)| {
        let mut fields = Fields::default();
        if let Some(priority) = priority {
            fields.number("priority", priority);
            fields
                .text("error_code", b"CANCEL")
                .text("has_multiple", b"priority");
        }
        if let Some(value) = setting {
            let mut setting = pair("settings_id", b"SETTINGSENABLEPUSH");
            setting.number("settings_value", value);
            fields.objects("settings", vec![setting]);
        }
        fields
    })
}

prop_compose! {
    fn http()(
        texts in collection::vec(text(), 4), maybe in collection::vec(maybe(), 6), numbers in any::<(Option<u16>, Option<u16>, u64, u64)>(),
        http2_stream in any::<Option<u32>>(), frames in http2_frames(),
    ) -> Record {
        let [hostname, url, method, protocol] = texts.try_into().unwrap();
        let [user_agent, referer, forwarded_for, content_type, content_range, redirect] = maybe.try_into().unwrap();
        let (port, status, length, request_length) = numbers;
        Record::Http(Box::new(HttpRecord {
            hostname, port, url, method, protocol, user_agent, referer, forwarded_for, content_type, content_range, redirect,
            status, length, request_length, http2_stream,
            headers: [vec![pair("name", b"a")], vec![pair("table_size_update", b"")]],
            frames: [frames, Fields::default()],
        }))
    }
}

prop_compose! {
    fn resource()(name in text(), kind in any::<u16>(), class in any::<u16>(), ttl in any::<u32>(), data in text(), numbers in any::<[u16; 3]>()) -> DnsResource {
        let kind = [kind, 6, 33, 44, 1, 5][usize::from(kind % 6)];
        let mut fields = Fields::default();
        match kind {
            6 => fields.text("mname", &data).number("serial", numbers[0]).number("minimum", numbers[1]),
            33 => fields.number("priority", numbers[0]).number("port", numbers[1]).text("name", &data),
            44 => fields.text("fingerprint", &data).number("algo", numbers[0] & 0xff),
            _ => &mut fields,
        };
        DnsResource { name, kind, class, ttl, data, fields }
    }
}

prop_compose! {
    fn dns()(
        id in any::<u16>(), flags in any::<u16>(), is_answer in any::<bool>(),
        questions in collection::vec((text(), any::<u16>(), any::<u16>()), 0..3),
        answers in collection::vec(resource(), 0..3), authorities in collection::vec(resource(), 0..2),
        additionals in collection::vec(resource(), 0..2),
    ) -> Record {
        Record::Dns(Box::new(DnsRecord { id, flags, is_answer, questions, answers, authorities, additionals }))
    }
}

/// Returns a fingerprint: any text, and 32 hexadecimal digits as of an MD5 hash.
fn fingerprint() -> impl Strategy<Value = Option<(Vec<u8>, Vec<u8>)>> {
    option::of((text(), "[0-9a-f]{32}".prop_map(String::into_bytes)))
}

prop_compose! {
    fn tls()(
        version in any::<u16>(), maybe in collection::vec(maybe(), 6), names in collection::vec(texts(), 3),
        times in any::<(Option<i64>, Option<i64>)>(), ja3 in fingerprint(), ja3s in fingerprint(), is_resumed in any::<bool>(),
    ) -> Record {
        let [sni, subject, issuer, serial, fingerprint, ja4] = maybe.try_into().unwrap();
        let [client_alpns, server_alpns, alternative_names] = names.try_into().unwrap();
        Record::Tls(Box::new(TlsRecord {
            version, sni, subject, issuer, serial, fingerprint, ja4, client_alpns,
            server_alpns, alternative_names,
            not_before: times.0, not_after: times.1, ja3, ja3s, is_resumed,
            client: times.0.map(|time| ClientCertificate { not_before: time, not_after: time, alternative_names: vec![b"a".to_vec()], ..ClientCertificate::default() }),
            details: times.1.map(|time| Box::new(TlsDetails { hellos: [tls_hello(time), Fields::default()], chains: [vec![b"a".to_vec()], vec![b"b".to_vec(); 2]] })),
            ..TlsRecord::default()
        }))
    }
}

/// Returns the numbers of a hello of a client.
fn tls_hello(number: i64) -> Fields {
    let mut out = Fields::default();
    out.text("version", b"TLS 1.2")
        .numbers("ciphers", vec![number as u64 & 0xffff]);
    out
}

fn status() -> impl Strategy<Value = Option<MailStatus>> {
    option::of(select(vec![
        MailStatus::InHeaders,
        MailStatus::InBody,
        MailStatus::Complete,
    ]))
}

/// Returns a message of Modbus: any function, and often one that the protocol defines.
fn modbus() -> impl Strategy<Value = Option<ModbusMessage>> {
    let function = prop_oneof![any::<u8>(), 1..25_u8, 0x81..0x99_u8, Just(43)];
    let message = (
        any::<u16>(),
        any::<u8>(),
        function,
        collection::vec(any::<u8>(), 0..12),
    );
    option::of(
        message.prop_map(|(protocol, unit, function, data)| ModbusMessage {
            protocol,
            unit,
            function,
            data,
        }),
    )
}

/// Returns group, variation and qualifier of objects, half of them of forms that the standard defines.
fn dnp3_kind() -> impl Strategy<Value = [u8; 3]> {
    prop_oneof![any::<[u8; 3]>(), [1..54_u8, 0..10_u8, 0..0x40_u8]]
}

prop_compose! {
    fn dnp3()(
        bytes in any::<[u8; 3]>(), ends in any::<[u16; 2]>(), indications in any::<Option<u16>>(), is_complete in any::<bool>(),
        objects in collection::vec((dnp3_kind(), any::<[u32; 3]>(), collection::vec(any::<u8>(), 0..40)), 0..3),
    ) -> Record {
        let objects = objects.into_iter().map(|([group, variation, qualifier], [start, stop, count], data)| {
            Dnp3Objects { group, variation, qualifier, start, stop, count, data }
        });
        Record::Dnp3(Box::new(Dnp3Record {
            link_control: bytes[0], source: ends[0], destination: ends[1], control: bytes[1], function: bytes[2], indications,
            objects: objects.collect(), is_complete,
        }))
    }
}

prop_compose! {
    fn smtp()(maybe in collection::vec(maybe(), 8), texts in collection::vec(texts(), 6), status in status()) -> Record {
        let [helo, mail_from, from, subject, message_id, date, x_mailer, body_md5] = maybe.try_into().unwrap();
        let [rcpt_to, to, attachments, urls, cc, received] = texts.try_into().unwrap();
        Record::Smtp(Box::new(SmtpRecord {
            helo, mail_from, from, subject, message_id, date, rcpt_to, to, attachments, urls, status, x_mailer, body_md5, cc, received,
        }))
    }
}

prop_compose! {
    fn ftp()(command in text(), argument in text(), completion_codes in texts(), replies in texts(), dynamic_port in any::<Option<u16>>()) -> Record {
        Record::Ftp(Box::new(FtpRecord { command, argument, completion_codes, replies, dynamic_port, is_command_cut: dynamic_port.is_some(), is_reply_cut: false }))
    }
}

prop_compose! {
    fn smb()(
        texts in collection::vec(text(), 2), maybe in collection::vec(maybe(), 2), status in any::<Option<u32>>(), session_id in any::<u64>(),
        ntlmssp in option::of((text(), text())), tree_id in any::<u32>(), dcerpc in option::of((collection::vec((text(), any::<[u16; 2]>()), 0..3), any::<u16>())),
    ) -> Record {
        let [dialect, command] = texts.try_into().unwrap();
        let [filename, share] = maybe.try_into().unwrap();
        let dcerpc = dcerpc.map(|(interfaces, operation): (Vec<_>, u16)| DcerpcCall {
            request: [None, Some(0), Some(11), Some(99)][usize::from(operation % 4)],
            answer: [None, Some(2), Some(12)][usize::from(operation % 3)],
            results: vec![operation; usize::from(operation % 5)],
            interfaces: interfaces.into_iter().collect(),
            operation,
            activity: (operation % 7 == 0).then(|| b"01020304-0506-0708-090a-0b0c0d0e0f10".to_vec()),
            fragments: [u32::from(operation % 2), 1],
            minor_version: (operation % 2) as u8,
            ..DcerpcCall::default()
        });
        let mut names = Fields::default();
        if let Some((domain, user)) = &ntlmssp {
            names.text("domain", domain).text("user", user).text("host", user).text("version", b"6.1 build 7601 rev 15");
        }
        let ntlmssp = names;
        Record::Smb(Box::new(SmbRecord { dialect, command, status, session_id, tree_id, filename, share, ntlmssp, dcerpc, more: Fields::default() }))
    }
}

prop_compose! {
    fn sip()(texts in collection::vec(text(), 4), code in any::<Option<u16>>()) -> Record {
        let [method, uri, version, reason] = texts.try_into().unwrap();
        let mut sdp = Fields::default();
        if code.is_some() {
            sdp.text("origin", &reason).texts("bandwidths", [&uri[..]]);
            let part = |name, value: &[u8]| {
                let mut fields = Fields::default();
                fields.text(name, value);
                fields
            };
            sdp.objects("media_descriptions", vec![part("media", &reason), part("connection_data", &uri)]);
        }
        Record::Sip(Box::new(SipRecord { method, uri, version, code, reason, sdp }))
    }
}

/// Returns fields of any names, nested to a depth.
fn fields(depth: u32) -> BoxedStrategy<Fields> {
    let plain = || {
        prop_oneof![
            any::<u64>().prop_map(Value::Number),
            any::<bool>().prop_map(Value::Flag),
            text().prop_map(Value::Text),
            texts().prop_map(Value::Texts),
            text().prop_map(|value| Value::Pairs(vec![(b"a key".to_vec(), value)])),
        ]
    };
    let value = match depth.checked_sub(1) {
        None => plain().boxed(),
        Some(depth) => prop_oneof![
            3 => plain(),
            1 => fields(depth).prop_map(Value::Object),
            1 => collection::vec(fields(depth), 0..2).prop_map(Value::Objects),
        ]
        .boxed(),
    };
    let names = select(vec!["version", "type", "request"]);
    collection::vec((names, value), 0..3)
        .prop_map(|list| {
            // A name occurs once in an object.
            let mut fields = Fields::default();
            for (name, value) in list {
                if fields.value(name).is_none() {
                    fields.list.push((name, value));
                }
            }
            fields
        })
        .boxed()
}

fn record() -> impl Strategy<Value = Record> {
    let end = || option::of((text(), text()));
    prop_oneof![
        Just(Record::None),
        http().boxed(),
        dns().boxed(),
        tls().boxed(),
        smtp().boxed(),
        ftp().boxed(),
        smb().boxed(),
        sip().boxed(),
        (end(), end(), end()).prop_map(|(client, server, hassh)| Record::Ssh(Box::new(SshRecord {
            client,
            server,
            hassh: [hassh, None]
        }))),
        (any::<u16>(), modbus(), modbus()).prop_map(|(identifier, request, response)| Record::Modbus(
            Box::new(ModbusRecord {
                identifier,
                messages: [request, response]
            })
        )),
        dnp3().boxed(),
        fields(3).prop_map(|fields| Record::Fields(Box::new(fields))),
    ]
}

/// Returns the protocol of the transaction that has this record.
fn protocol_of(record: &Record) -> AppProtocol {
    match record {
        Record::None => AppProtocol::Pop3,
        Record::Http(_) => AppProtocol::Http,
        Record::Dns(_) => AppProtocol::Dns,
        Record::Tls(_) => AppProtocol::Tls,
        Record::Smtp(_) => AppProtocol::Smtp,
        Record::Ftp(_) => AppProtocol::Ftp,
        Record::Ssh(_) => AppProtocol::Ssh,
        Record::Smb(_) => AppProtocol::Smb,
        Record::Sip(_) => AppProtocol::Sip,
        Record::Modbus(_) => AppProtocol::Modbus,
        Record::Dnp3(_) => AppProtocol::Dnp3,
        Record::Fields(_) => AppProtocol::Mqtt,
    }
}

const ACTIONS: [Action; 8] = [
    Action::None,
    Action::PassPacket,
    Action::PassFlow,
    Action::DropPacket,
    Action::DropFlow,
    Action::RejectSource,
    Action::RejectDestination,
    Action::RejectBoth,
];

prop_compose! {
    fn frame()(
        id in any::<u64>(), kind in select(&[Buffer::FrameTlsPdu, Buffer::FrameSmbSmb1Data, Buffer::FrameSipRequestLine][..]),
        direction in select(&Direction::BOTH[..]), begin in any::<Option<u64>>(), size in any::<Option<u64>>(), is_complete in any::<bool>(),
    ) -> FrameView {
        FrameView { id, kind, direction, begin, size, is_complete }
    }
}

prop_compose! {
    fn evidence()(stream in maybe(), packet in maybe(), has_link in any::<bool>()) -> Evidence {
        Evidence { stream, packet, has_link }
    }
}

prop_compose! {
    fn alert()(
        subject in subject().boxed(), numbers in any::<(u32, u32, u32, u32)>(), action in select(&ACTIONS[..]), app in option::of(app()),
        packet_action in select(&ACTIONS[..]),
        transaction in any::<Option<u64>>(), flow in flow().boxed(), direction in select(&Direction::BOTH[..]), record in record().boxed(),
        files in collection::vec(file(), 0..2), bits in collection::vec(any::<u32>(), 0..3), has_context in any::<bool>(), frame in option::of(frame().boxed()), tunnel in option::of(tunnel().boxed()),
        captured in collection::vec((text(), text()), 0..2), evidence in option::of(evidence().boxed()),
    ) -> Event {
        let (sid, gid, rev, rule) = numbers;
        let app = match record {
            Record::Fields(_) => Some(protocol_of(&record)),
            _ => app,
        };
        let context = Box::new(AlertContext { flow, direction, record, files, bits, counters: vec![(0, rev)], variables: captured.clone() });
        Event::Alert(Alert { subject, sid, gid, rev, rule, action, packet_action, app, transaction, frame: frame.map(Box::new), tunnel: tunnel.map(Box::new), json: Vec::new(), captured: captured.clone(), packet_variables: captured, context: has_context.then_some(context), evidence: evidence.map(Box::new) })
    }
}

fn anomalies() -> impl Strategy<Value = Vec<AppEvent>> {
    collection::vec(
        select(vec!["http.request_too_long", "dns.malformed_data", "unnamed"]),
        0..3,
    )
}

prop_compose! {
    fn transaction()(subject in subject().boxed(), id in any::<u64>(), record in record().boxed(), files in collection::vec(file(), 0..2), anomalies in anomalies()) -> Event {
        Event::Transaction(Box::new(TransactionEvent { subject, id, app: protocol_of(&record), record, files, anomalies }))
    }
}

prop_compose! {
    fn arp()(operation in any::<u16>(), macs in any::<[[u8; 6]; 2]>(), ends in any::<[std::net::Ipv4Addr; 2]>()) -> ArpPacket {
        let ([sender_mac, target_mac], [sender, target]) = (macs, ends);
        ArpPacket { operation, sender_mac, sender, target_mac, target }
    }
}

/// Returns any event of the engine.
pub(crate) fn event() -> impl Strategy<Value = Event> {
    let ends = select(vec![
        FlowEnd::Timeout,
        FlowEnd::Reused,
        FlowEnd::Evicted,
        FlowEnd::Shutdown,
    ]);
    let mut reasons = vec![
        DropReason::Rule,
        DropReason::RateFilter,
        DropReason::Flow,
        DropReason::Normalizer,
        DropReason::Memory,
    ];
    reasons.extend(Cause::ALL.iter().map(|cause| DropReason::Policy(*cause)));
    prop_oneof![
        4 => alert().boxed(),
        8 => transaction().boxed(),
        1 => (flow(), ends).prop_map(|(mut flow, end)| {
            flow.id = flow.id.max(1);
            let bits = (0..flow.transactions as u32 % 4).collect();
            Event::Flow(Box::new(flow), end, FlowVariables { bits, counters: vec![(0, 1)], variables: vec![(b"name".to_vec(), b"value".to_vec())] })
        }),
        1 => (subject(), select(reasons), option::of(alert())).prop_map(|(subject, reason, rule)| {
            let rule = rule.and_then(|event| match event {
                Event::Alert(alert) => Some(Box::new(alert)),
                _ => None,
            });
            Event::Drop(subject, reason, rule)
        }),
        1 => (subject(), app(), frame(), collection::vec(any::<u8>(), 0..9)).prop_map(|(subject, app, view, payload)| {
            Event::Frame(subject, Box::new(FrameReport { view, app, payload }))
        }),
        1 => (subject(), any::<[u64; 4]>()).prop_map(|(subject, bits)| Event::Packet(subject, PacketEvents::from_bits(bits))),
        1 => (subject(), arp()).prop_map(|(subject, packet)| Event::Arp(subject, packet)),
        1 => (subject(), app(), anomalies()).prop_map(|(subject, app, events)| Event::Anomaly(subject, app, events)),
        1 => (subject(), select(Cause::ALL), select(Policy::ALL), option::of((any::<u32>(), any::<u32>()))).prop_map(
            |(subject, cause, policy, rule)| Event::Exception(subject, cause, policy, rule.map(|(gid, sid)| RuleId { gid, sid }))
        ),
    ]
}
