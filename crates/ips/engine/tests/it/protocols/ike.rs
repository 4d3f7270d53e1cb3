//! IKE version 1: the records of a flow, and the attributes that its server chose.

use millrace_ips_engine::app::record::{Fields, Record, Value};
use millrace_ips_engine::{Event, Mode, Settings};

use super::{Message, client, server};
use crate::bed::TestBed;
use crate::frames::udp;

/// Types of payloads (RFC 2408, section 3.1).
const ASSOCIATION: u8 = 1;
const KEY_EXCHANGE: u8 = 4;
const IDENTIFICATION: u8 = 5;
const NONCE: u8 = 10;
const VENDOR: u8 = 13;
/// The flag of encrypted payloads.
const ENCRYPTED: u8 = 1;

/// Returns a message with payloads: their types and bodies.
fn message(flags: u8, payloads: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (at, (_, content)) in payloads.iter().enumerate() {
        let next = payloads.get(at + 1).map_or(0, |(kind, _)| *kind);
        body.extend([next, 0]);
        body.extend((4 + content.len() as u16).to_be_bytes());
        body.extend(content);
    }
    let mut out = vec![0x11; 8];
    out.extend([0x22; 8]);
    out.extend([payloads[0].0, 0x10, 2, flags, 0, 0, 0, 0]);
    out.extend((28 + body.len() as u32).to_be_bytes());
    [out, body].concat()
}

/// Returns a security association with a transform for each algorithm of encryption (RFC 2408, sections 3.4 to 3.6).
fn association(algorithms: &[u8]) -> (u8, Vec<u8>) {
    let transform = |algorithm: &u8| [0, 0, 0, 12, 1, 1, 0, 0, 0x80, 1, 0, *algorithm];
    let transforms: Vec<u8> = algorithms.iter().flat_map(transform).collect();
    let mut body = vec![0, 0, 0, 1, 0, 0, 0, 1, 0, 0];
    body.extend((8 + transforms.len() as u16).to_be_bytes());
    body.extend([1, 1, 0, algorithms.len() as u8]);
    (ASSOCIATION, [body, transforms].concat())
}

/// Returns main mode: proposals, exchange of keys, and an encrypted message.
fn main_mode() -> Vec<Message> {
    let keys = |byte: u8| message(0, &[(KEY_EXCHANGE, vec![byte; 4]), (NONCE, vec![byte; 2])]);
    let vendor = (VENDOR, vec![0x4a, 0x13]);
    vec![
        client(message(
            0,
            &[association(&[7, 5]), vendor.clone(), vendor.clone()],
        )),
        server(message(0, &[association(&[7]), vendor])),
        client(keys(0xc0)),
        server(keys(0x50)),
        client(message(ENCRYPTED, &[(IDENTIFICATION, vec![0xee; 8])])),
    ]
}

fn run(messages: &[Message], mode: Mode, rules: &str) -> TestBed {
    let settings = Settings {
        mode,
        records: true,
        ..Settings::default()
    };
    let mut bed = TestBed::with(settings, rules);
    for (is_reply, bytes) in messages {
        bed.send(udp(500, *is_reply, bytes));
    }
    bed.finish();
    bed
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

/// Returns the value at a path of names.
fn at(fields: &Fields, path: &[&str]) -> Option<Value> {
    let (first, rest) = path.split_first()?;
    let (_, value) = fields.list.iter().find(|(name, _)| name == first)?;
    match (value, rest) {
        (value, []) => Some(value.clone()),
        (Value::Object(inner), rest) => at(inner, rest),
        _ => None,
    }
}

fn texts(list: &[&str]) -> Option<Value> {
    Some(Value::Texts(
        list.iter().map(|text| text.as_bytes().to_vec()).collect(),
    ))
}

#[test]
fn later_messages_have_the_chosen_attributes_and_their_own_payloads() {
    for mode in [Mode::Ids, Mode::Ips] {
        let found = records(&run(&main_mode(), mode, ""));
        assert_eq!(found.len(), 5, "{mode:?}");
        let chosen: Vec<_> = found.iter().map(|record| at(record, &["alg_enc_raw"])).collect();
        let aes = Some(Value::Number(7));
        assert_eq!(chosen, [None, aes.clone(), aes.clone(), aes.clone(), aes]);
        let number_of = |record: usize, path: &[&str]| match at(&found[record], path) {
            Some(Value::Objects(list)) => list.len(),
            _ => 0,
        };
        let proposals = ["ikev1", "client", "proposals"];
        assert_eq!(
            [0, 1, 2, 3].map(|record| number_of(record, &proposals)),
            [2, 0, 0, 0]
        );
        assert_eq!(at(&found[0], &["ikev1", "vendor_ids"]), texts(&["4a13", "4a13"]));
        assert_eq!(at(&found[2], &["ikev1", "vendor_ids"]), None);
        let names = ["Transform", "Proposal", "SecurityAssociation", "VendorID"];
        assert_eq!(at(&found[0], &["payload"]), texts(&names));
        let key = Some(Value::Text(b"c0c0c0c0".to_vec()));
        let path = ["ikev1", "client", "key_exchange_payload"];
        assert_eq!([2, 3].map(|record| at(&found[record], &path)), [key.clone(), key]);
        let encrypted = &found[4];
        assert_eq!(at(encrypted, &["payload"]), texts(&["Identification"]));
        assert_eq!(
            at(encrypted, &["ikev1", "encrypted_payloads"]),
            Some(Value::Flag(true))
        );
        for name in ["client", "server", "vendor_ids"] {
            assert_eq!(at(encrypted, &["ikev1", name]), None, "{name}");
        }
    }
}

#[test]
fn several_transforms_of_the_server_are_a_list() {
    let messages = [
        client(message(0, &[association(&[7])])),
        server(message(0, &[association(&[7, 5])])),
    ];
    let found = records(&run(&messages, Mode::Ids, ""));
    let Some(Value::Objects(list)) = at(&found[1], &["server_proposals"]) else {
        panic!("{found:?}");
    };
    let numbers: Vec<_> = list.iter().map(|one| at(one, &["alg_enc_raw"])).collect();
    assert_eq!(numbers, [7, 5].map(|number| Some(Value::Number(number))));
    assert_eq!(at(&found[0], &["server_proposals"]), None);
}

#[test]
fn the_identifier_of_each_end_is_that_of_its_messages() {
    let rules = "alert ike any any -> any any (ike.init_spi; content:\"1111\"; sid:1;)\n\
        alert ike any any -> any any (ike.resp_spi; content:\"2222\"; sid:2;)\n";
    for mode in [Mode::Ids, Mode::Ips] {
        let bed = run(&main_mode(), mode, rules);
        // Three messages are of the initiator, and two of the responder.
        assert_eq!((bed.sids(), bed.alerts()), ([1, 2].into(), 5), "{mode:?}");
    }
}

#[test]
fn a_rule_over_the_chosen_attributes_matches_the_message_that_has_them() {
    let rules = "alert ike any any -> any any (ike.chosen_sa_attribute:alg_enc=7; sid:1;)\n\
        alert ike any any -> any any (ike.chosen_sa_attribute:alg_enc=5; sid:2;)\n";
    for mode in [Mode::Ids, Mode::Ips] {
        let bed = run(&main_mode(), mode, rules);
        assert_eq!((bed.sids(), bed.alerts()), ([1].into(), 1), "{mode:?}");
    }
}
