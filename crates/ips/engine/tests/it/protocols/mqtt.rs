//! MQTT: rules test the packets of an exchange together, and its record has all of them.

use millrace_ips_engine::app::record::{Fields, Record, Value};
use millrace_ips_engine::{Event, Mode, Settings};

use super::binary::{mqtt, text};
use super::{Message, client, server};
use crate::bed::TestBed;
use crate::frames::tcp;

/// Returns the packets of two exchanges of version 3.1.1 and the end of the connection.
fn subscription() -> Vec<Message> {
    let head = [&text("MQTT")[..], &[4, 2, 0, 60], &text("c")].concat();
    vec![
        client(mqtt(0x10, &[&head])),
        server(mqtt(0x20, &[&[0, 0]])),
        client(mqtt(
            0x82,
            &[&[0, 1], &text("rooms/1"), &[0], &text("rooms/2"), &[0]],
        )),
        server(mqtt(0x90, &[&[0, 1, 0, 0]])),
        client(mqtt(0xe0, &[])),
    ]
}

/// Returns the settings of each mode.
fn modes() -> [Settings; 2] {
    [Mode::Ids, Mode::Ips].map(|mode| Settings {
        mode,
        records: true,
        ..Settings::default()
    })
}

/// Returns the alerts of each rule, by their number from 1 on.
fn counts(bed: &TestBed, rules: u32) -> Vec<usize> {
    let of = |sid| {
        let is_it = |event: &&Event| matches!(event, Event::Alert(alert) if alert.sid == sid);
        bed.events().iter().filter(is_it).count()
    };
    (1..=rules).map(of).collect()
}

/// Returns the fields of the records.
fn records(bed: &TestBed) -> Vec<Fields> {
    let of = |event: &Event| match event {
        Event::Transaction(transaction) => match &transaction.record {
            Record::Fields(fields) => Some((**fields).clone()),
            _ => None,
        },
        _ => None,
    };
    bed.events().iter().filter_map(of).collect()
}

#[test]
fn a_rule_matches_an_exchange_once() {
    let rules = "alert mqtt any any -> any any (mqtt.flags:!retain,!dup; sid:1;)\n\
        alert mqtt any any -> any any (mqtt.qos:0; sid:2;)\n\
        alert mqtt any any -> any any (mqtt.type:SUBACK; mqtt.subscribe.topic; content:\"rooms/2\"; mqtt.reason_code:0; sid:3;)\n\
        alert mqtt any any -> any 1883 (mqtt.type:SUBACK; sid:4;)\n\
        alert mqtt any 1883 -> any any (mqtt.type:SUBSCRIBE; sid:5;)\n\
        alert mqtt any any -> any any (mqtt.subscribe.topic; content:\"rooms/1\"; sid:6;)\n";
    for settings in modes() {
        for size in [1000, 1, 7] {
            let mut bed = TestBed::with(settings.clone(), rules);
            bed.send_all(tcp(1883, &subscription(), size));
            bed.finish();
            assert_eq!(counts(&bed, 6), [3, 3, 1, 1, 1, 1], "{:?} {size}", settings.mode);
            let names: Vec<Vec<&str>> = records(&bed)
                .iter()
                .map(|record| record.list.iter().map(|(name, _)| *name).collect())
                .collect();
            assert_eq!(
                names,
                [
                    vec!["connect", "connack"],
                    vec!["subscribe", "suback"],
                    vec!["disconnect"]
                ]
            );
        }
    }
}

#[test]
fn the_alert_of_an_exchange_has_the_request_and_its_acknowledgment() {
    let rules = "alert mqtt any any -> any any (mqtt.type:SUBACK; sid:1;)\n";
    for settings in modes() {
        let mut bed = TestBed::with(settings, rules);
        bed.send_all(tcp(1883, &subscription(), 1000));
        let record = bed.events().iter().find_map(|event| match event {
            Event::Alert(alert) => alert.context.as_ref().map(|context| context.record.clone()),
            _ => None,
        });
        let Some(Record::Fields(fields)) = record else {
            panic!("{record:?}");
        };
        let names: Vec<&str> = fields.list.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["subscribe", "suback"]);
    }
}

#[test]
fn a_drop_rule_over_an_acknowledgment_drops_it() {
    let rules = "drop mqtt any any -> any any (mqtt.connect.clientid; content:\"c\"; mqtt.connack.return_code:0; sid:1;)\n";
    let [_, settings] = modes();
    let mut bed = TestBed::with(settings, rules);
    let mut packets = tcp(1883, &subscription(), 1000).into_iter();
    // The handshake and CONNECT pass.
    assert!(!bed.send_all(packets.by_ref().take(4)));
    assert!(bed.send_all(packets));
    assert_eq!(bed.alerts(), 1);
}

#[test]
fn a_packet_whose_end_is_not_inspected_has_an_anomaly_and_says_how_much() {
    let body = [&text("t")[..], &vec![b'x'; 100_000]].concat();
    let size = [
        body.len() as u8 | 0x80,
        (body.len() >> 7) as u8 | 0x80,
        (body.len() >> 14) as u8,
    ];
    let messages = [
        &subscription()[..2],
        &[
            client([&[0x30][..], &size, &body].concat()),
            client(mqtt(0x30, &[&text("t"), b"next"])),
        ],
    ]
    .concat();
    let rules = "alert mqtt any any -> any any (mqtt.publish.message; content:\"next\"; sid:1;)\n\
        alert mqtt any any -> any any (app-layer-event:applayer_inspection_incomplete; sid:2;)\n";
    for settings in modes() {
        let mut bed = TestBed::with(settings, rules);
        bed.send_all(tcp(1883, &messages, 1400));
        bed.finish();
        assert_eq!(counts(&bed, 2), [1, 1]);
        let skipped: Vec<_> = records(&bed)
            .iter_mut()
            .filter_map(|record| match record.value("publish") {
                Some(Value::Object(packet)) => Some(packet.value("skipped_length").cloned()),
                _ => None,
            })
            .collect();
        // 64 KiB are kept, of which four bytes are the header.
        let left = body.len() + 4 - (64 << 10);
        assert_eq!(skipped, [Some(Value::Number(left as u64)), None]);
    }
}

#[test]
fn packets_of_version_5_have_reason_codes_and_properties() {
    let head = [&text("MQTT")[..], &[5, 2, 0, 60, 0], &text("c")].concat();
    let pair = [
        &[38][..],
        &text("key"),
        &text("value"),
        &[38],
        &text("key"),
        &text("other"),
    ]
    .concat();
    let properties = [&[pair.len() as u8][..], &pair].concat();
    let publish = |identifier: u8| client(mqtt(0x32, &[&text("t"), &[0, identifier, 0], b"x"]));
    let messages = vec![
        client(mqtt(0x10, &[&head])),
        server(mqtt(0x20, &[&[0, 0, 0]])),
        client(mqtt(0xa2, &[&[0, 1, 0], &text("rooms/1"), &text("rooms/2")])),
        server(mqtt(0xb0, &[&[0, 1, 0, 17, 0]])),
        publish(2),
        server(mqtt(0x40, &[&[0, 2]])),
        publish(3),
        server(mqtt(0x40, &[&[0, 3, 0x10], &properties])),
        client(mqtt(0xe0, &[])),
    ];
    let rules = "alert mqtt any any -> any any (mqtt.type:UNSUBACK; mqtt.reason_code:17; sid:1;)\n\
        alert mqtt any any -> any any (mqtt.type:PUBACK; mqtt.reason_code:0; sid:2;)\n\
        alert mqtt any any -> any any (mqtt.type:PUBACK; mqtt.reason_code:16; sid:3;)\n\
        alert mqtt any any -> any any (mqtt.type:DISCONNECT; mqtt.reason_code:0; sid:4;)\n";
    for settings in modes() {
        for size in [1000, 1] {
            let mut bed = TestBed::with(settings.clone(), rules);
            bed.send_all(tcp(1883, &messages, size));
            bed.finish();
            assert_eq!(counts(&bed, 4), [1, 1, 1, 1]);
            let mut found = records(&bed);
            let mut value = |record: usize, packet: &str, name: &str| {
                let Some(Value::Object(packet)) = found[record].value(packet) else {
                    return None;
                };
                packet.value(name).map(|value| value.clone())
            };
            assert_eq!(
                value(1, "unsuback", "reason_codes"),
                Some(Value::Numbers(vec![17, 0]))
            );
            assert_eq!(value(2, "puback", "reason_code"), Some(Value::Number(0)));
            assert_eq!(value(3, "puback", "reason_code"), Some(Value::Number(16)));
            assert_eq!(value(4, "disconnect", "reason_code"), Some(Value::Number(0)));
            let Some(Value::Object(properties)) = value(3, "puback", "properties") else {
                panic!("no properties");
            };
            let pairs = vec![(b"key".to_vec(), b"value".to_vec())];
            assert_eq!(properties.list, [("user_property", Value::Pairs(pairs))]);
        }
    }
}
