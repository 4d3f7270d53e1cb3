//! SASL, copied data and segmentation.

use super::*;
use crate::app::record::Record;

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(4 + body.len() as u32).to_be_bytes(), body].concat()
}

/// Returns the records of the messages of both ends, in segments of a size.
fn records(messages: &[(Direction, Vec<u8>)], size: usize) -> Vec<Fields> {
    let (mut pgsql, mut out) = (Pgsql::default(), Transactions::default());
    for (direction, bytes) in messages {
        for bytes in bytes.chunks(size) {
            let outcome = pgsql.data(StreamChunk::of(*direction, bytes), &mut out);
            assert_eq!(outcome, Outcome::Continue);
        }
    }
    let record = |transaction: &Transaction| match &transaction.record {
        Record::Fields(fields) => (**fields).clone(),
        _ => Fields::default(),
    };
    out.list.iter().map(record).collect()
}

fn expected(request: impl FnOnce(&mut Fields), response: Option<fn(&mut Fields)>) -> Fields {
    let mut fields = Fields::default();
    fields.object("request", request);
    if let Some(response) = response {
        fields.object("response", response);
    }
    fields
}

#[test]
fn messages_of_sasl_and_copied_data_are_records_in_any_segmentation() {
    use Direction::{ToClient, ToServer};
    let startup = [&[0, 0, 0, 17, 0, 3, 0, 0][..], b"user\0me\0\0"].concat();
    let mut first = b"SCRAM-SHA-256\0\0\0\0\x05".to_vec();
    first.extend(b"n,,r=");
    let messages = [
        (ToServer, [&[0, 0, 0, 8][..], &SSL_REQUEST.to_be_bytes()].concat()),
        (ToClient, b"N".to_vec()),
        (ToServer, startup),
        (ToClient, message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0")),
        (ToServer, message(b'p', &first)),
        (ToClient, message(b'R', b"\0\0\0\x0br=server")),
        (ToServer, message(b'p', b"c=proof")),
        (
            ToClient,
            [
                message(b'R', b"\0\0\0\x0cv=done"),
                message(b'R', &[0; 4]),
                message(b'Z', b"I"),
            ]
            .concat(),
        ),
        (ToServer, message(b'Q', b"COPY t FROM STDIN\0")),
        (ToClient, message(b'G', &[0, 0, 2, 0, 0, 0, 0])),
        (
            ToServer,
            [
                message(b'd', b"1\t2\n"),
                message(b'd', b"3\t44\n"),
                message(b'c', b""),
            ]
            .concat(),
        ),
        (
            ToClient,
            [message(b'C', b"COPY 2\0"), message(b'Z', b"I")].concat(),
        ),
        (ToServer, message(b'Q', b"COPY t TO STDOUT\0")),
        (
            ToClient,
            [
                message(b'H', &[0, 0, 2, 0, 0, 0, 0]),
                message(b'd', b"1\t2\n"),
                message(b'd', b"3\t44\n"),
                message(b'c', b""),
                message(b'C', b"COPY 2\0"),
                message(b'Z', b"I"),
            ]
            .concat(),
        ),
    ];
    let whole = records(&messages, 1000);
    let copied = |name: &'static str, counter: &'static str, out: &mut Fields| {
        out.object(name, |out| {
            out.number(counter, 2_u64).number("data_size", 9_u64);
        });
    };
    let wanted = [
        expected(
            |out| {
                out.text("message", b"SSL Request");
            },
            Some(|out| {
                out.flag("ssl_accepted", false);
            }),
        ),
        expected(
            |out| {
                out.text("sasl_authentication_mechanism", b"scram_SHA256")
                    .text("sasl_param", b"n,,r=");
            },
            Some(|out| {
                out.text("message", b"authentication_sasl_continue");
            }),
        ),
        expected(
            |out| {
                out.text("sasl_response", b"c=proof");
            },
            Some(|out| {
                out.text("authentication_sasl_final", b"v=done")
                    .text("message", b"authentication_ok");
            }),
        ),
        expected(
            |out| {
                copied("copy_data_in", "msg_count", out);
                out.text("message", b"copy_done");
            },
            Some(|out| {
                out.text("command_completed", b"COPY 2");
            }),
        ),
    ];
    assert_eq!([&whole[0], &whole[2], &whole[3], &whole[5]], wanted.each_ref());
    let mut out = whole[6].clone();
    let Some(Value::Object(answer)) = out.value("response") else {
        panic!("no response");
    };
    let mut rows = Fields::default();
    copied("copy_data_out", "row_count", &mut rows);
    assert_eq!(
        answer.value("copy_data_out").cloned(),
        Some(rows.list[0].1.clone())
    );
    let mut columns = Fields::default();
    columns.number("columns", 2_u64);
    assert_eq!(
        answer.value("copy_out_response").cloned(),
        Some(Value::Object(columns))
    );
    for size in 1..30 {
        assert_eq!(records(&messages, size), whole, "{size}");
    }
}

#[test]
fn parameters_have_the_names_of_records_or_their_own() {
    let body = b"user\0me\0DateStyle\0ISO\0datestyle\0iso\0search_path\0public\0\0";
    let startup = [&(8 + body.len() as u32).to_be_bytes()[..], &[0, 3, 0, 0], body].concat();
    let of = |name: &[u8], value: &[u8]| {
        let mut one = Fields::default();
        one.pair("parameter", (name, value));
        one
    };
    let expected = vec![
        of(b"date_style", b"ISO"),
        of(b"datestyle", b"iso"),
        of(b"search_path", b"public"),
    ];
    for size in 1..=startup.len() {
        let mut found = records(&[(Direction::ToServer, startup.clone())], size);
        let Some(Value::Object(request)) = found[0].value("request") else {
            panic!("no request");
        };
        let Some(Value::Object(parameters)) = request.value("startup_parameters") else {
            panic!("no parameters");
        };
        assert_eq!(
            parameters.value("optional_parameters"),
            Some(&mut Value::Objects(expected.clone())),
            "{size}"
        );
    }
}

#[test]
fn messages_behind_lost_bytes_are_found_in_any_segmentation() {
    let startup = [&[0, 0, 0, 17, 0, 3, 0, 0][..], b"user\0me\0\0"].concat();
    let query = |text: &[u8]| message(b'Q', text);
    let behind = [query(b"SELECT 3\0"), query(b"SELECT 4\0")].concat();
    // The end of the lost message may look like the header of another, unless a segment ends there.
    for (kept, steps) in [
        (&b""[..], &[1, 7, 1000][..]),
        (b"2\0", &[1, 7, 1000]),
        (b" C\0\0\0\x0412\0", &[7, 1000]),
        (b"P\0\0\0\x05x12\0", &[7, 1000]),
    ] {
        for &step in steps {
            let (mut pgsql, mut out) = (Pgsql::default(), Transactions::default());
            let first = [&startup[..], &query(b"SELECT 1\0"), &query(b"SELECT 2\0")[..4]].concat();
            let outcome = pgsql.data(StreamChunk::of(Direction::ToServer, &first), &mut out);
            assert_eq!(outcome, Outcome::Continue);
            let rest = [kept, &behind].concat();
            for (at, bytes) in rest.chunks(step).enumerate() {
                let chunk = StreamChunk {
                    gap_before: if at == 0 { 9 } else { 0 },
                    ..StreamChunk::of(Direction::ToServer, bytes)
                };
                assert_eq!(pgsql.data(chunk, &mut out), Outcome::Continue);
            }
            let queries: Vec<Vec<u8>> = out
                .list
                .iter()
                .flat_map(|transaction| transaction.buffers(Buffer::PgsqlQuery, Direction::ToServer))
                .map(|view| view.bytes.to_vec())
                .collect();
            assert_eq!(
                queries,
                [b"SELECT 1", b"SELECT 3", b"SELECT 4"],
                "{} {step}",
                kept.escape_ascii()
            );
        }
    }
}
