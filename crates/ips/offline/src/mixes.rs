//! Traffic for measurements: connections with handshake, data in both directions and close. The bytes are the
//! same in every run; the addresses differ from pass to pass.
//!
//! A replayed capture would repeat its connections. After the first pass, all segments would be
//! retransmissions, which any engine handles on its cheapest path.

use millrace_types::Time;

/// Object sizes of web and mail, in KiB: small ones are more frequent.
const OBJECTS: [usize; 12] = [1, 1, 1, 1, 2, 2, 2, 4, 4, 16, 64, 256];
/// Payload of a full segment.
const SEGMENT: usize = 1448;
/// Time between two frames of a pass, in nanoseconds.
const INTERVAL: u64 = 1000;

const FIN: u8 = 1;
const SYN: u8 = 2;
const PSH: u8 = 8;
const ACK: u8 = 16;

/// A mix of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Web: nine of ten connections are TLS 1.3.
    Web,
    /// HTTP in clear.
    Http,
    /// DNS over UDP, and other small datagrams.
    Dns,
    /// Mails with attachments, and files over HTTP.
    Mail,
}

impl Mix {
    /// Every mix.
    pub const ALL: [Mix; 4] = [Mix::Web, Mix::Http, Mix::Dns, Mix::Mail];

    /// Returns the name of the mix.
    pub fn name(self) -> &'static str {
        match self {
            Mix::Web => "web",
            Mix::Http => "http",
            Mix::Dns => "dns",
            Mix::Mail => "mail",
        }
    }
}

/// A frame of a mix: Ethernet and IPv4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MixFrame {
    /// Time of arrival.
    pub time: Time,
    pub bytes: Vec<u8>,
}

/// Returns the frames of a pass with `connections` connections. Addresses and ports differ between passes;
/// checksums are 0.
pub fn frames(mix: Mix, pass: u32, connections: u32) -> Vec<MixFrame> {
    let mut generator = Generator {
        random: 0x9e37_79b9_7f4a_7c15,
        now: u64::from(pass) * 1_000_000_000,
        frames: Vec::new(),
    };
    for number in 0..connections {
        let connection = Connection::new(pass, number);
        let object = OBJECTS[generator.below(OBJECTS.len())] << 10;
        match mix {
            Mix::Web if number % 10 != 0 => generator.tls(connection, object),
            Mix::Web | Mix::Http => generator.http(connection, object, false),
            Mix::Dns => generator.datagrams(&connection),
            Mix::Mail if number % 2 == 0 => generator.mail(connection, object),
            Mix::Mail => generator.http(connection, object, true),
        }
    }
    generator.frames
}

/// The endpoints of a connection, and its sequence numbers.
struct Connection {
    client: [u8; 4],
    server: [u8; 4],
    port: u16,
    seq: [u32; 2],
}

impl Connection {
    fn new(pass: u32, number: u32) -> Connection {
        let [_, pass_high, pass_middle, pass_low] = pass.to_be_bytes();
        let [_, _, high, low] = number.to_be_bytes();
        Connection {
            client: [10, pass_high ^ high, pass_middle, pass_low],
            server: [198, 18, high, low],
            port: 20_000 + (number % 40_000) as u16,
            seq: [1000, 5000],
        }
    }
}

struct Generator {
    random: u64,
    now: u64,
    frames: Vec<MixFrame>,
}

impl Generator {
    /// Returns a random number (SplitMix64).
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.random;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn bytes(&mut self, size: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size + 8);
        while bytes.len() < size {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(size);
        bytes
    }

    /// Returns a lower-case name.
    fn word(&mut self, size: usize) -> String {
        let letters = (0..size).map(|_| char::from(b'a' + self.below(26) as u8));
        letters.collect()
    }

    /// Returns a page of HTML of about `size` bytes.
    fn page(&mut self, size: usize) -> Vec<u8> {
        let mut page = b"<!DOCTYPE html>\n<html><head><title>".to_vec();
        page.extend(self.word(8).bytes());
        page.extend_from_slice(b"</title><script src=\"/js/app.js\"></script></head><body>\n");
        while page.len() < size {
            let (class, text) = (self.word(5), self.word(40));
            page.extend(
                format!("<div class=\"{class}\"><a href=\"/{class}.html\">{text}</a></div>\n").bytes(),
            );
        }
        page.truncate(size);
        page
    }

    fn emit(&mut self, connection: &Connection, is_reply: bool, protocol: u8, body: &[u8]) {
        let (src, dst) = match is_reply {
            true => (connection.server, connection.client),
            false => (connection.client, connection.server),
        };
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        bytes.extend(((20 + body.len()) as u16).to_be_bytes());
        bytes.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
        bytes.extend(src);
        bytes.extend(dst);
        bytes.extend_from_slice(body);
        self.now += INTERVAL;
        self.frames.push(MixFrame {
            time: Time::from_nanos(self.now),
            bytes,
        });
    }

    fn segment(&mut self, connection: &mut Connection, port: u16, is_reply: bool, flags: u8, payload: &[u8]) {
        let (own, other) = (usize::from(is_reply), usize::from(!is_reply));
        let (source, destination) = match is_reply {
            true => (port, connection.port),
            false => (connection.port, port),
        };
        let ack = match flags & ACK {
            0 => 0,
            _ => connection.seq[other],
        };
        let mut body = Vec::with_capacity(20 + payload.len());
        body.extend(source.to_be_bytes());
        body.extend(destination.to_be_bytes());
        body.extend(connection.seq[own].to_be_bytes());
        body.extend(ack.to_be_bytes());
        body.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        body.extend_from_slice(payload);
        self.emit(connection, is_reply, 6, &body);
        let control = u32::from(flags & (SYN | FIN) != 0);
        connection.seq[own] = connection.seq[own].wrapping_add(payload.len() as u32 + control);
    }

    /// Emits a connection with its messages; true marks a message of the server. Every second full segment is
    /// acknowledged.
    fn connection(&mut self, mut connection: Connection, port: u16, messages: &[(bool, Vec<u8>)]) {
        let it = &mut connection;
        self.segment(it, port, false, SYN, &[]);
        self.segment(it, port, true, SYN | ACK, &[]);
        self.segment(it, port, false, ACK, &[]);
        for (is_reply, message) in messages {
            let count = message.len().div_ceil(SEGMENT);
            for (at, part) in message.chunks(SEGMENT).enumerate() {
                let is_last = at + 1 == count;
                let push = if is_last { PSH } else { 0 };
                self.segment(it, port, *is_reply, ACK | push, part);
                if is_last || at % 2 == 1 {
                    self.segment(it, port, !*is_reply, ACK, &[]);
                }
            }
        }
        self.segment(it, port, false, FIN | ACK, &[]);
        self.segment(it, port, true, FIN | ACK, &[]);
        self.segment(it, port, false, ACK, &[]);
    }

    fn tls(&mut self, connection: Connection, object: usize) {
        let name = format!("{}.example.com", self.word(9));
        let client = client_hello(&name, &self.bytes(64));
        let mut server = server_hello(&self.bytes(64));
        server.extend_from_slice(b"\x14\x03\x03\x00\x01\x01");
        server.extend(records(&self.bytes(2800)));
        let finished = [b"\x14\x03\x03\x00\x01\x01".to_vec(), records(&self.bytes(53))].concat();
        let request = records(&self.bytes(400));
        let response = records(&self.bytes(object));
        let messages = [
            (false, client),
            (true, server),
            (false, finished),
            (false, request),
            (true, response),
        ];
        self.connection(connection, 443, &messages);
    }

    fn http(&mut self, connection: Connection, object: usize, is_binary: bool) {
        let (path, host) = (self.word(12), self.word(9));
        let suffix = if is_binary { "zip" } else { "html" };
        let request = format!(
            "GET /{path}/index.{suffix}?id={} HTTP/1.1\r\nHost: www.{host}.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; \
             rv:109.0) Gecko/20100101 Firefox/115.0\r\nAccept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\n\
             Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: identity\r\nConnection: keep-alive\r\n\
             Referer: http://www.{host}.com/\r\nCookie: session={path}\r\n\r\n",
            self.below(100_000)
        );
        let (kind, body) = match is_binary {
            true => ("application/octet-stream", self.bytes(object)),
            false => ("text/html; charset=utf-8", self.page(object)),
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Mon, 23 Nov 2026 20:00:00 GMT\r\nContent-Type: {kind}\r\n\
             Content-Length: {}\r\nConnection: keep-alive\r\n\r\n",
            body.len()
        );
        let response = [head.into_bytes(), body].concat();
        self.connection(connection, 80, &[(false, request.into_bytes()), (true, response)]);
    }

    fn mail(&mut self, connection: Connection, object: usize) {
        let (from, to) = (self.word(7), self.word(7));
        let attachment = base64_lines(&self.bytes(object));
        let mail = [
            format!(
                "From: {from}@example.com\r\nTo: {to}@example.org\r\nSubject: report {from}\r\nMIME-Version: 1.0\r\n\
                 Content-Type: multipart/mixed; boundary=\"=_{to}\"\r\n\r\n--=_{to}\r\nContent-Type: text/plain\r\n\r\n\
                 See the attached file.\r\n--=_{to}\r\nContent-Type: application/octet-stream\r\n\
                 Content-Disposition: attachment; filename=\"{from}.bin\"\r\nContent-Transfer-Encoding: base64\r\n\r\n"
            )
            .into_bytes(),
            attachment,
            format!("--=_{to}--\r\n.\r\n").into_bytes(),
        ]
        .concat();
        let messages = [
            (true, b"220 mx.example.org ESMTP\r\n".to_vec()),
            (false, b"EHLO mail.example.com\r\n".to_vec()),
            (true, b"250-mx.example.org\r\n250 8BITMIME\r\n".to_vec()),
            (false, format!("MAIL FROM:<{from}@example.com>\r\n").into_bytes()),
            (true, b"250 ok\r\n".to_vec()),
            (false, format!("RCPT TO:<{to}@example.org>\r\n").into_bytes()),
            (true, b"250 ok\r\n".to_vec()),
            (false, b"DATA\r\n".to_vec()),
            (true, b"354 go on\r\n".to_vec()),
            (false, mail),
            (true, b"250 queued\r\n".to_vec()),
            (false, b"QUIT\r\n".to_vec()),
            (true, b"221 bye\r\n".to_vec()),
        ];
        self.connection(connection, 25, &messages);
    }

    fn datagrams(&mut self, connection: &Connection) {
        let name = [self.word(6), self.word(9), "com".to_owned()];
        let mut question = Vec::new();
        for label in &name {
            question.push(label.len() as u8);
            question.extend(label.bytes());
        }
        question.extend([0, 0, 1, 0, 1]);
        let id = self.next().to_be_bytes();
        let query = [&[id[0], id[1], 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &question].concat();
        let answer = [
            &[id[0], id[1], 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0][..],
            &question,
            &[0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 198, 18, id[2], id[3]],
        ]
        .concat();
        let payload = self.bytes(64 + usize::from(id[4]));
        for (port, is_reply, payload) in [
            (53, false, &query),
            (53, true, &answer),
            (3478, false, &payload),
            (3478, true, &payload),
        ] {
            let (source, destination) = match is_reply {
                true => (port, connection.port),
                false => (connection.port, port),
            };
            let mut body = Vec::with_capacity(8 + payload.len());
            body.extend(source.to_be_bytes());
            body.extend(destination.to_be_bytes());
            body.extend(((8 + payload.len()) as u16).to_be_bytes());
            body.extend([0, 0]);
            body.extend_from_slice(payload);
            self.emit(connection, is_reply, 17, &body);
        }
    }
}

/// Returns records of application data.
fn records(bytes: &[u8]) -> Vec<u8> {
    let record = |part: &[u8]| {
        let mut record = vec![0x17, 3, 3];
        record.extend((part.len() as u16).to_be_bytes());
        record.extend_from_slice(part);
        record
    };
    bytes.chunks(16 << 10).flat_map(record).collect()
}

/// Returns a handshake message in a record.
fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let size = (body.len() as u32).to_be_bytes();
    let mut record = vec![0x16, 3, 1];
    record.extend((body.len() as u16 + 4).to_be_bytes());
    record.push(kind);
    record.extend_from_slice(&size[1..]);
    record.extend_from_slice(body);
    record
}

/// Returns an extension of a hello (RFC 8446, section 4.2).
fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut extension = kind.to_be_bytes().to_vec();
    extension.extend((body.len() as u16).to_be_bytes());
    extension.extend_from_slice(body);
    extension
}

/// Returns a client hello of TLS 1.3 (RFC 8446, section 4.1.2) with a server name; `random` is 64 bytes long.
fn client_hello(name: &str, random: &[u8]) -> Vec<u8> {
    let size = name.len() as u16;
    let mut server_name = (size + 3).to_be_bytes().to_vec();
    server_name.push(0);
    server_name.extend(size.to_be_bytes());
    server_name.extend(name.bytes());
    let extensions = [
        extension(0, &server_name),
        extension(16, b"\x00\x0c\x02h2\x08http/1.1"),
        extension(43, b"\x02\x03\x04"),
        extension(10, b"\x00\x04\x00\x1d\x00\x17"),
    ]
    .concat();
    let mut body = vec![3, 3];
    body.extend_from_slice(&random[..32]);
    body.push(32);
    body.extend_from_slice(&random[32..]);
    body.extend_from_slice(b"\x00\x06\x13\x01\x13\x02\xc0\x2f\x01\x00");
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    handshake(1, &body)
}

/// Returns a server hello of TLS 1.3 (RFC 8446, section 4.1.3); `random` is 64 bytes long.
fn server_hello(random: &[u8]) -> Vec<u8> {
    let extensions = extension(43, b"\x03\x04");
    let mut body = vec![3, 3];
    body.extend_from_slice(&random[..32]);
    body.push(32);
    body.extend_from_slice(&random[32..]);
    body.extend_from_slice(b"\x13\x01\x00");
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    handshake(2, &body)
}

/// Returns bytes as lines of Base64 (RFC 2045, section 6.8).
fn base64_lines(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut lines = Vec::with_capacity(bytes.len() * 3 / 2);
    for line in bytes.chunks(57) {
        for group in line.chunks(3) {
            let bits =
                group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
            for place in 0..4 {
                let digit = ALPHABET[(bits >> (18 - 6 * place) & 63) as usize];
                lines.push(if place > group.len() { b'=' } else { digit });
            }
        }
        lines.extend_from_slice(b"\r\n");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_the_same_in_every_run_and_has_other_addresses_in_every_pass() {
        for mix in Mix::ALL {
            let first = frames(mix, 1, 20);
            assert_eq!(first, frames(mix, 1, 20));
            let second = frames(mix, 2, 20);
            assert_eq!(first.len(), second.len());
            let client = |frame: &MixFrame| frame.bytes[26..30].to_vec();
            assert_ne!(client(&first[0]), client(&second[0]), "{}", mix.name());
        }
    }

    #[test]
    fn base64_is_padded() {
        assert_eq!(base64_lines(b"MZAB"), b"TVpBQg==\r\n");
        assert_eq!(base64_lines(b"MZA"), b"TVpB\r\n");
    }
}
