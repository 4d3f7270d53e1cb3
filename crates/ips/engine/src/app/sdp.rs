//! SDP (RFC 8866): the fields of a session description in a body of SIP, which rules inspect with `sdp.origin` and others, and
//! which the records of SIP show.

use millrace_ips_rules::buffers::Buffer;

use super::record::{FIELD_LIST, Fields, Value};
use super::transaction::Transaction;
use crate::flow::Direction;

/// Largest number of fields that are published.
const FIELDS: usize = 256;

/// The media type of session descriptions.
pub(super) const MEDIA_TYPE: &[u8] = b"application/sdp";

/// Fields of the session, by their letters.
const SESSION: &[(u8, Buffer)] = &[
    (b'o', Buffer::SdpOrigin),
    (b's', Buffer::SdpSessionName),
    (b'i', Buffer::SdpSessionInfo),
    (b'u', Buffer::SdpUri),
    (b'e', Buffer::SdpEmail),
    (b'p', Buffer::SdpPhoneNumber),
    (b'c', Buffer::SdpConnectionData),
    (b'b', Buffer::SdpBandwidth),
    (b't', Buffer::SdpTime),
    (b'r', Buffer::SdpRepeatTime),
    (b'z', Buffer::SdpTimezone),
    (b'k', Buffer::SdpEncryptionKey),
    (b'a', Buffer::SdpAttribute),
    (b'm', Buffer::SdpMedia),
];

/// Fields of a media description, which begins with its first `m=`.
const MEDIA: &[(u8, Buffer)] = &[
    (b'm', Buffer::SdpMedia),
    (b'i', Buffer::SdpMediaInfo),
    (b'c', Buffer::SdpMediaConnectionData),
    (b'b', Buffer::SdpMediaBandwidth),
    (b'k', Buffer::SdpMediaEncryptionKey),
    (b'a', Buffer::SdpAttribute),
];

/// Largest size of a description in a record, in bytes.
const RECORD_SIZE: usize = 8 << 10;

/// Fields of the session in records, by their letters. Those of [`LISTS`] are lists.
const SESSION_NAMES: &[(u8, &str)] = &[
    (b'o', "origin"),
    (b's', "session_name"),
    (b'i', "session_info"),
    (b'u', "uri"),
    (b'e', "email"),
    (b'p', "phone_number"),
    (b'c', "connection_data"),
    (b'b', "bandwidths"),
    (b't', "time"),
    (b'r', "repeat_time"),
    (b'z', "timezone"),
    (b'k', "encryption_key"),
    (b'a', "attributes"),
];

/// Fields of a media description in records.
const MEDIA_NAMES: &[(u8, &str)] = &[
    (b'm', "media"),
    (b'i', "media_info"),
    (b'c', "connection_data"),
    (b'b', "bandwidths"),
    (b'k', "encryption_key"),
    (b'a', "attributes"),
];

/// The letters of fields that are lists in records.
const LISTS: &[u8] = b"ba";

/// Returns the fields of a description: letters and values.
fn fields(body: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let lines = body.split(|byte| *byte == b'\n').take(FIELDS);
    lines.filter_map(|line| match line.strip_suffix(b"\r").unwrap_or(line) {
        [letter, b'=', value @ ..] => Some((*letter, value)),
        _ => None,
    })
}

/// Publishes the fields of a session description, each as a buffer.
pub(super) fn publish(body: &[u8], direction: Direction, transaction: &mut Transaction) {
    let mut is_media = false;
    for (letter, value) in fields(body) {
        is_media |= letter == b'm';
        let names = if is_media { MEDIA } else { SESSION };
        if let Some((_, buffer)) = names.iter().find(|(known, _)| *known == letter) {
            transaction.publish(*buffer, direction, value);
        }
    }
}

/// Adds a time to the times of a session, or a repetition to the last one (RFC 8866, sections 5.9 and 5.10).
fn add_time(letter: u8, value: &[u8], times: &mut Vec<Fields>) {
    if letter == b't' && times.len() < FIELD_LIST {
        let mut time = Fields::default();
        time.text("time", value);
        times.push(time);
    } else if letter == b'r'
        && let Some(time) = times.last_mut()
        && time.value("repeat_time").is_none()
    {
        time.text("repeat_time", value);
    }
}

/// Returns the fields of a session description for records. Of a field that is no list, the first one counts.
pub(super) fn record(body: &[u8]) -> Fields {
    let mut session = Fields::default();
    let mut media: Vec<Fields> = Vec::new();
    // The times have a list besides: Suricata 8 names them in either way.
    let mut times: Vec<Fields> = Vec::new();
    for (letter, value) in fields(&body[..body.len().min(RECORD_SIZE)]) {
        if letter == b'm' {
            if media.len() == FIELD_LIST {
                break;
            }
            media.push(Fields::default());
        }
        if media.is_empty() {
            add_time(letter, value, &mut times);
            if letter == b'v'
                && let Some(version) = core::str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse::<u8>().ok())
                && session.value("version").is_none()
            {
                session.number("version", version);
            }
        }
        let (out, names) = match media.last_mut() {
            Some(media) => (media, MEDIA_NAMES),
            None => (&mut session, SESSION_NAMES),
        };
        let Some((_, name)) = names.iter().find(|(known, _)| *known == letter) else {
            continue;
        };
        match out.value(name) {
            Some(Value::Texts(list)) if list.len() < FIELD_LIST => list.push(value.to_vec()),
            Some(_) => {}
            None if LISTS.contains(&letter) => {
                out.texts(name, [value]);
            }
            None => {
                out.text(name, value);
            }
        }
    }
    if !times.is_empty() {
        session.objects("time_descriptions", times);
    }
    if !media.is_empty() {
        session.objects("media_descriptions", media);
    }
    session
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_a_record_with_its_media() {
        let body = b"v=0\r\no=anna 1 2 IN IP4 192.0.2.1\r\ns=a call\r\nb=AS:64\r\nb=CT:9\r\nt=1 2\r\nr=7 3 0\r\nr=8 3 0\r\nt=3 4\r\na=sendrecv\r\n\
            m=audio 30000 RTP/AVP 0\r\ni=voice\r\na=rtpmap:0 pcmu/8000\r\na=ptime:20\r\nm=video 4 RTP/AVP 3\r\nm\r\n";
        let (mut audio, mut video, mut expected) = (Fields::default(), Fields::default(), Fields::default());
        audio
            .text("media", b"audio 30000 RTP/AVP 0")
            .text("media_info", b"voice")
            .texts("attributes", [&b"rtpmap:0 pcmu/8000"[..], b"ptime:20"]);
        video.text("media", b"video 4 RTP/AVP 3");
        let time = |time: &[u8], repeat: &[u8]| {
            let mut out = Fields::default();
            out.text("time", time);
            if !repeat.is_empty() {
                out.text("repeat_time", repeat);
            }
            out
        };
        expected
            .number("version", 0_u8)
            .text("origin", b"anna 1 2 IN IP4 192.0.2.1")
            .text("session_name", b"a call")
            .texts("bandwidths", [&b"AS:64"[..], b"CT:9"])
            .text("time", b"1 2")
            .text("repeat_time", b"7 3 0")
            .texts("attributes", [&b"sendrecv"[..]])
            .objects(
                "time_descriptions",
                vec![time(b"1 2", b"7 3 0"), time(b"3 4", b"")],
            )
            .objects("media_descriptions", vec![audio, video]);
        assert_eq!(record(body), expected);
        assert_eq!(record(b"no description"), Fields::default());
    }

    #[test]
    fn a_description_of_any_size_is_a_bounded_record() {
        let body = b"m=a\r\na=b\r\n".repeat(4 << 10);
        let Some(Value::Objects(media)) = record(&body).value("media_descriptions").cloned() else {
            panic!("no media");
        };
        assert_eq!(media.len(), FIELD_LIST);
    }
}
