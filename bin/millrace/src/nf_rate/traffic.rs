//! TCP connections in memory: handshake, data in both directions, close.

use millrace_nf::{Direction, Verdict};
use millrace_types::Mac;
use millrace_wire::tcp::flags::{ACK, FIN, PSH, SYN};
use millrace_wire::{Builder, Frame, Packet, tcp};
use serde::Serialize;

/// Size of the Ethernet, IPv4 and TCP headers of a frame, and of its check sequence, in bytes.
const HEADERS: usize = 54;
const FCS: usize = 4;
/// Data of a full segment.
const SEGMENT: usize = 1460;
/// The number of different attacks, `attack-00` to `attack-15`, which are spread over the forms.
const ATTACKS: u16 = 16;

/// The part of an HTTP request that has the name of an attack.
#[derive(Clone, Copy)]
enum AttackForm {
    Path,
    /// A path whose first letter is written as `%61`.
    EncodedPath,
    UserAgent,
    /// The body of a POST.
    Body,
}

impl AttackForm {
    const ALL: [AttackForm; 4] = [
        AttackForm::Path,
        AttackForm::EncodedPath,
        AttackForm::UserAgent,
        AttackForm::Body,
    ];

    /// Returns the request of an attack.
    fn request(self, number: u16) -> String {
        let name = format!("attack-{number:02}");
        match self {
            AttackForm::Path => request("GET", &format!("/{name}/"), FIREFOX, ""),
            AttackForm::EncodedPath => request("GET", &format!("/%61{}/", &name[1..]), FIREFOX, ""),
            AttackForm::UserAgent => request("GET", CATALOGUE, &format!("{name}/1.0"), ""),
            AttackForm::Body => request(
                "POST",
                CATALOGUE,
                FIREFOX,
                &format!("user=admin&query={name}%27--"),
            ),
        }
    }
}

/// The folder of requests that are no attacks.
const CATALOGUE: &str = "/catalogue/";
/// The browser of requests that are no attacks.
const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:109.0) Gecko/20100101 Firefox/115.0";

/// A segment of a connection, with its position in the byte streams of both ends.
struct Step {
    direction: Direction,
    flags: u16,
    /// Bytes that the client and the server sent before, SYN and FIN included.
    sent: [u32; 2],
    data: Vec<u8>,
}

/// The connections of a pass: their packets in the order in which a link carries them.
pub(crate) struct Traffic {
    pub(crate) templates: Vec<(Direction, Vec<u8>)>,
    pub(crate) frames: Vec<Frame>,
    /// Packets of a connection.
    pub(crate) per_connection: usize,
    /// The packets that are attacks; empty if none is.
    attacks: Vec<bool>,
}

/// Packets that a function processed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Processed {
    pub(crate) packets: u64,
    pub(crate) dropped: u64,
    pub(crate) attacks: Attacks,
}

/// Requests that are attacks.
#[derive(Clone, Copy, Default, Serialize)]
pub(crate) struct Attacks {
    /// Attacks that the function processed.
    pub(crate) requests: u64,
    /// Attacks that the function did not drop.
    pub(crate) passed: u64,
}

impl Traffic {
    /// Returns `connections` connections that are open at the same time, each with `data` segments of `frame` bytes.
    pub(crate) fn new(connections: u16, data: u16, frame: usize) -> Traffic {
        let payload: Vec<u8> = (0..frame - FCS - HEADERS)
            .map(|at| b'a' + (at % 23) as u8)
            .collect();
        let mut connection = Connection::begin();
        for number in 0..data {
            let direction = match number % 2 {
                0 => Direction::Forward,
                _ => Direction::Backward,
            };
            connection.add(direction, ACK | PSH, &payload);
        }
        Traffic::of(connections, &connection.end())
    }

    /// Returns `connections` connections that are open at the same time, each with an HTTP request and a
    /// response with a body of `kib` KiB. If `attacks` is `Some(n)`, the request of each n-th connection is
    /// an attack.
    pub(crate) fn http(connections: u16, kib: u16, attacks: Option<u16>) -> Traffic {
        let size = usize::from(kib) << 10;
        let mut response = format!(
            "HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: text/html\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
        )
        .into_bytes();
        let line = b"<div class=\"entry\"><a href=\"/entry.html\">the quick brown fox jumps over the dog</a></div>\n";
        response.extend(line.iter().cycle().take(size));
        let steps = |request: &str| {
            let mut connection = Connection::begin();
            connection.add(Direction::Forward, ACK | PSH, request.as_bytes());
            for (number, part) in response.chunks(SEGMENT).enumerate() {
                connection.add(Direction::Backward, ACK | PSH, part);
                if number % 2 == 1 {
                    connection.add(Direction::Forward, ACK, &[]);
                }
            }
            connection.end()
        };
        let mut traffic = Traffic::of(connections, &steps(&request("GET", CATALOGUE, FIREFOX, "")));
        let Some(every) = attacks else {
            return traffic;
        };
        traffic.attacks = vec![false; traffic.templates.len()];
        for (count, number) in (0..connections).step_by(usize::from(every)).enumerate() {
            let form = AttackForm::ALL[count % AttackForm::ALL.len()];
            let steps = steps(&form.request(count as u16 % ATTACKS));
            for (row, step) in steps.iter().enumerate() {
                let at = row * usize::from(connections) + usize::from(number);
                traffic.templates[at] = segment(number, step);
                traffic.frames[at] = Frame::new(&traffic.templates[at].1);
                traffic.attacks[at] = step.direction == Direction::Forward && !step.data.is_empty();
            }
        }
        traffic
    }

    fn of(connections: u16, steps: &[Step]) -> Traffic {
        let of_step = |step| (0..connections).map(move |number| segment(number, step));
        let templates: Vec<(Direction, Vec<u8>)> = steps.iter().flat_map(of_step).collect();
        Traffic {
            frames: templates.iter().map(|(_, bytes)| Frame::new(bytes)).collect(),
            templates,
            per_connection: steps.len(),
            attacks: Vec::new(),
        }
    }

    /// Counts packets from `from` on by their verdicts.
    pub(crate) fn count(&self, from: usize, verdicts: &[Verdict], processed: &mut Processed) {
        let is_dropped = |verdict: &Verdict| *verdict == Verdict::Drop;
        processed.packets += verdicts.len() as u64;
        processed.dropped += verdicts.iter().filter(|verdict| is_dropped(verdict)).count() as u64;
        let attacks = self.attacks.iter().skip(from).zip(verdicts);
        for (_, verdict) in attacks.filter(|(is_attack, _)| **is_attack) {
            processed.attacks.requests += 1;
            processed.attacks.passed += u64::from(!is_dropped(verdict));
        }
    }

    /// Copies the packets of a pass from the templates, with client addresses that differ from those of other
    /// passes.
    pub(crate) fn renew(&mut self, packets: core::ops::Range<usize>, pass: u64) {
        let added = (pass as u16).to_be_bytes();
        let frames = self.frames[packets.clone()].iter_mut();
        for ((direction, template), frame) in self.templates[packets].iter().zip(frames) {
            let head = Packet::head_mut(frame);
            head.copy_from_slice(template);
            // The offset of the second half of the client's address. The checksums below are those of IPv4
            // and TCP.
            let at = match direction {
                Direction::Forward => 28,
                Direction::Backward => 32,
            };
            let old = [head[at], head[at + 1]];
            head[at..at + 2].copy_from_slice(&added);
            let change = millrace_wire::checksum::Change::of_bytes(&old, &added);
            for checksum in [24, 50] {
                let sum = u16::from_be_bytes([head[checksum], head[checksum + 1]]);
                head[checksum..checksum + 2].copy_from_slice(&change.apply(sum).to_be_bytes());
            }
        }
    }

    /// Returns the number of consecutive packets from `from` on that have the same direction, at most `most`.
    pub(crate) fn run(&self, from: usize, most: usize) -> usize {
        let rest = &self.templates[from..];
        let same = rest.iter().take_while(|(direction, _)| *direction == rest[0].0);
        same.take(most).count()
    }
}

/// Returns an HTTP request for an object in a folder. A body that is not empty is sent as a form.
fn request(method: &str, folder: &str, agent: &str, body: &str) -> String {
    let content = if body.is_empty() {
        String::new()
    } else {
        let size = body.len();
        format!("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {size}\r\n")
    };
    format!(
        "{method} {folder}index.html?id=1 HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: {agent}\r\nAccept: */*\r\n\
         {content}Connection: close\r\n\r\n{body}"
    )
}

/// A connection under construction.
struct Connection {
    steps: Vec<Step>,
    sent: [u32; 2],
}

impl Connection {
    fn begin() -> Connection {
        let mut connection = Connection {
            steps: Vec::new(),
            sent: [0; 2],
        };
        connection.add(Direction::Forward, SYN, &[]);
        connection.add(Direction::Backward, SYN | ACK, &[]);
        connection.add(Direction::Forward, ACK, &[]);
        connection
    }

    fn add(&mut self, direction: Direction, flags: u16, data: &[u8]) {
        self.steps.push(Step {
            direction,
            flags,
            sent: self.sent,
            data: data.to_vec(),
        });
        let own = usize::from(direction == Direction::Backward);
        self.sent[own] += data.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
    }

    fn end(mut self) -> Vec<Step> {
        self.add(Direction::Forward, ACK | FIN, &[]);
        self.add(Direction::Backward, ACK | FIN, &[]);
        self.add(Direction::Forward, ACK, &[]);
        self.steps
    }
}

/// Returns a segment of the connection with this number, as a frame with its direction.
fn segment(number: u16, step: &Step) -> (Direction, Vec<u8>) {
    const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
    const SERVER: [u8; 4] = [192, 0, 2, 1];
    let client = ([10, 0, 0, 0], 1024 + number);
    let [of_client, of_server] = step.sent;
    let (ends, ports, seq, ack) = match step.direction {
        Direction::Forward => ((client.0, SERVER), (client.1, 80), of_client, of_server),
        Direction::Backward => ((SERVER, client.0), (80, client.1), of_server, of_client),
    };
    let repr = tcp::Repr {
        src: ports.0,
        dst: ports.1,
        seq,
        ack: if step.flags & ACK == 0 { 0 } else { ack },
        flags: step.flags,
        window: 65_535,
        urgent: 0,
        options: tcp::Options::default(),
    };
    let bytes = Builder::ethernet(MACS[0], MACS[1])
        .ipv4(ends.0, ends.1)
        .tcp(repr)
        .payload(&step.data)
        .build();
    (step.direction, bytes)
}
