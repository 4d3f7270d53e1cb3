//! An OpenFlow connection of the bench, for echoes and flow_mods while `ovs-ofctl` is busy. It implements only these
//! messages (OpenFlow 1.3.5, sections 7.1 and 7.3.4).

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::workload::{Header, Sink};
use millrace_process::ProcessError;

const VERSION: u8 = 4;
const HELLO: u8 = 0;
const ERROR: u8 = 1;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
const FLOW_MOD: u8 = 14;
const BARRIER_REQUEST: u8 = 20;
const BARRIER_REPLY: u8 = 21;
/// The time limit for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

trait Stream: Read + Write + Send {
    fn try_clone_boxed(&self) -> io::Result<Box<dyn Stream>>;
}

impl Stream for TcpStream {
    fn try_clone_boxed(&self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.try_clone()?))
    }
}

impl Stream for UnixStream {
    fn try_clone_boxed(&self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.try_clone()?))
    }
}

/// A connection to a switch.
pub(crate) struct Channel {
    stream: Box<dyn Stream>,
    xid: u32,
}

/// A message of the switch.
struct Message {
    kind: u8,
    xid: u32,
    body: Vec<u8>,
}

/// The result of flow_mods at a fixed rate.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FlowModResult {
    /// The start, then each confirmation by a barrier: its time, and the number of flow_mods that were accepted so far.
    accepted: Vec<(Instant, u64)>,
}

impl FlowModResult {
    /// Returns the flow_mods that were accepted per second between two moments. Those between two confirmations count
    /// as evenly spread. A switch that falls behind confirms the rest after the end, which does not count.
    pub(crate) fn rate(&self, from: Instant, to: Instant) -> f64 {
        (self.accepted_by(to) - self.accepted_by(from)) / to.duration_since(from).as_secs_f64()
    }

    fn accepted_by(&self, at: Instant) -> f64 {
        let next = self.accepted.partition_point(|(time, _)| *time <= at);
        let count = |index: usize| {
            self.accepted
                .get(index)
                .map(|(time, count)| (*time, *count as f64))
        };
        match (next.checked_sub(1).and_then(count), count(next)) {
            (Some((time, so_far)), Some((later, then))) => {
                let share = (at - time).as_secs_f64() / (later - time).as_secs_f64();
                so_far + (then - so_far) * share
            }
            (Some((_, so_far)), None) => so_far,
            (None, _) => 0.0,
        }
    }
}

/// The result of a growing table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GrowthResult {
    /// The number of flow_mods that barriers confirmed, without those that the switch rejected.
    pub(crate) accepted: u64,
    /// The seconds between the first message and the last confirmation.
    pub(crate) seconds: f64,
    /// Flow_mods per second of the last fifth.
    pub(crate) last_fifth: f64,
    /// The longest time between two barrier replies.
    pub(crate) slowest_barrier: Duration,
}

fn failed(source: io::Error) -> ProcessError {
    ProcessError::File {
        path: "the OpenFlow connection".into(),
        source,
    }
}

impl Channel {
    /// Connects to `tcp:ADDRESS:PORT` or `unix:PATH` and sends a hello message.
    pub(crate) fn connect(target: &str) -> Result<Channel, ProcessError> {
        let stream: Box<dyn Stream> = match target.split_once(':') {
            Some(("unix", path)) => {
                let stream = UnixStream::connect(path).map_err(failed)?;
                stream.set_read_timeout(Some(REPLY_TIMEOUT)).map_err(failed)?;
                Box::new(stream)
            }
            Some(("tcp", address)) => {
                let stream = TcpStream::connect(address).map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                stream.set_read_timeout(Some(REPLY_TIMEOUT)).map_err(failed)?;
                Box::new(stream)
            }
            _ => {
                return Err(failed(io::Error::other(format!(
                    "{target} is not an address: expected tcp:ADDRESS:PORT or unix:PATH"
                ))));
            }
        };
        let mut channel = Channel { stream, xid: 0 };
        channel.send(HELLO, &[])?;
        Ok(channel)
    }

    fn send(&mut self, kind: u8, body: &[u8]) -> Result<u32, ProcessError> {
        self.xid += 1;
        self.stream
            .write_all(&message(kind, self.xid, body))
            .map_err(failed)?;
        Ok(self.xid)
    }

    fn receive(&mut self) -> Result<Message, ProcessError> {
        receive(self.stream.as_mut()).map_err(failed)
    }

    /// Returns the round-trip time of an echo.
    pub(crate) fn echo(&mut self) -> Result<Duration, ProcessError> {
        let start = Instant::now();
        let xid = self.send(ECHO_REQUEST, &[])?;
        loop {
            let message = self.receive()?;
            match message.kind {
                ECHO_REPLY if message.xid == xid => return Ok(start.elapsed()),
                ECHO_REQUEST => self.answer(&message)?,
                _ => {}
            }
        }
    }

    fn answer(&mut self, request: &Message) -> Result<(), ProcessError> {
        let reply = self::message(ECHO_REPLY, request.xid, &request.body);
        self.stream.write_all(&reply).map_err(failed)
    }

    /// Adds an entry for each of these headers as fast as the switch accepts them, with a barrier after every 1,000.
    pub(crate) fn grow(mut self, headers: &[Header]) -> Result<GrowthResult, ProcessError> {
        /// The number of flow_mods between two barriers.
        const EVERY: usize = 1000;
        let mut bytes = Vec::with_capacity(headers.len() * 130);
        for chunk in headers.chunks(EVERY) {
            for header in chunk {
                self.xid += 1;
                bytes.extend(message(
                    FLOW_MOD,
                    self.xid,
                    &flow_mod(header, FlowModCommand::Add),
                ));
            }
            self.xid += 1;
            bytes.extend(message(BARRIER_REQUEST, self.xid, &[]));
        }
        let barriers = headers.chunks(EVERY).len();
        let mut reader = self.stream.try_clone_boxed().map_err(failed)?;
        let replies = std::thread::spawn(move || -> io::Result<(u64, Vec<Instant>)> {
            let (mut errors, mut times) = (0, Vec::with_capacity(barriers));
            while times.len() < barriers {
                match receive(reader.as_mut())?.kind {
                    BARRIER_REPLY => times.push(Instant::now()),
                    ERROR => errors += 1,
                    _ => {}
                }
            }
            Ok((errors, times))
        });
        let start = Instant::now();
        self.stream.write_all(&bytes).map_err(failed)?;
        let (errors, times) = match replies.join() {
            Ok(outcome) => outcome.map_err(failed)?,
            Err(_) => return Err(failed(io::Error::other("the reader panicked"))),
        };
        let end = times.last().copied().unwrap_or(start);
        let fifth = times.len().div_ceil(5).min(times.len().saturating_sub(1));
        let begin = times.get(times.len() - 1 - fifth).copied().unwrap_or(start);
        let gaps = times.windows(2).map(|pair| pair[1].duration_since(pair[0]));
        Ok(GrowthResult {
            accepted: (headers.len() as u64).saturating_sub(errors),
            seconds: end.duration_since(start).as_secs_f64(),
            last_fifth: (fifth * EVERY) as f64 / end.duration_since(begin).as_secs_f64(),
            slowest_barrier: gaps.max().unwrap_or_default(),
        })
    }

    /// Sends `rate` flow_mods per second for this time. Entries for these headers are added and deleted in turn, so
    /// that the size of the table is constant.
    pub(crate) fn flow_mods(
        mut self,
        headers: &[Header],
        rate: u32,
        duration: Duration,
    ) -> Result<FlowModResult, ProcessError> {
        /// The interval between two groups of flow_mods, and the number of groups between two barriers.
        const SLICE: Duration = Duration::from_millis(5);
        const SLICES: usize = 20;
        let few = (rate as f64 * SLICE.as_secs_f64()).round() as usize;
        let mut reader = self.stream.try_clone_boxed().map_err(failed)?;
        let slices = (duration.as_secs_f64() / SLICE.as_secs_f64()) as usize;
        let barriers = slices / SLICES;
        let start = Instant::now();
        let replies = std::thread::spawn(move || -> io::Result<Vec<(Instant, u64)>> {
            let (mut accepted, mut errors) = (vec![(start, 0)], 0);
            while accepted.len() <= barriers {
                match receive(reader.as_mut())?.kind {
                    BARRIER_REPLY => {
                        let confirmed = (accepted.len() * few * SLICES) as u64;
                        accepted.push((Instant::now(), confirmed.saturating_sub(errors)));
                    }
                    ERROR => errors += 1,
                    _ => {}
                }
            }
            Ok(accepted)
        });
        let mut sent = 0_usize;
        for slice in 0..barriers * SLICES {
            let mut bytes = Vec::with_capacity(few * 160);
            for _ in 0..few {
                let pair = sent / 2;
                if let Some(header) = headers.get(pair % headers.len().max(1)) {
                    let command = if sent.is_multiple_of(2) {
                        FlowModCommand::Add
                    } else {
                        FlowModCommand::DeleteStrict
                    };
                    self.xid += 1;
                    bytes.extend(message(FLOW_MOD, self.xid, &flow_mod(header, command)));
                }
                sent += 1;
            }
            if slice % SLICES == SLICES - 1 {
                self.xid += 1;
                bytes.extend(message(BARRIER_REQUEST, self.xid, &[]));
            }
            self.stream.write_all(&bytes).map_err(failed)?;
            let next = start + SLICE * (slice as u32 + 1);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        match replies.join() {
            Ok(Ok(accepted)) => Ok(FlowModResult { accepted }),
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(failed(io::Error::other("the reader panicked"))),
        }
    }
}

fn receive(stream: &mut dyn Stream) -> io::Result<Message> {
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    let [_, kind, high, low, a, b, c, d] = head;
    let size = usize::from(u16::from_be_bytes([high, low]));
    let mut body = vec![0; size.saturating_sub(head.len())];
    stream.read_exact(&mut body)?;
    Ok(Message {
        kind,
        xid: u32::from_be_bytes([a, b, c, d]),
        body,
    })
}

fn message(kind: u8, xid: u32, body: &[u8]) -> Vec<u8> {
    let size = (8 + body.len()) as u16;
    let mut bytes = vec![VERSION, kind];
    bytes.extend(size.to_be_bytes());
    bytes.extend(xid.to_be_bytes());
    bytes.extend(body);
    bytes
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlowModCommand {
    Add = 0,
    DeleteStrict = 4,
}

/// Returns the body of a flow_mod for an exact 5-tuple with output to the first sink (OpenFlow 1.3.5, section
/// 7.3.4.1).
fn flow_mod(header: &Header, command: FlowModCommand) -> Vec<u8> {
    let mut fields = Vec::with_capacity(48);
    let mut field = |number: u8, value: &[u8]| {
        // The class is OFPXMC_OPENFLOW_BASIC, without a mask.
        fields.extend([0x80, 0x00, number << 1, value.len() as u8]);
        fields.extend(value);
    };
    let (sport, dport) = if header.proto == 6 { (13, 14) } else { (15, 16) };
    field(5, &0x0800_u16.to_be_bytes());
    field(10, &[header.proto]);
    field(11, &header.src.to_be_bytes());
    field(12, &header.dst.to_be_bytes());
    field(sport, &header.sport.to_be_bytes());
    field(dport, &header.dport.to_be_bytes());

    let mut body = vec![0; 16];
    // Table 0, no timeouts, priority 200.
    body.extend([0, command as u8, 0, 0, 0, 0, 0, 200]);
    // The request names no buffer, any port, any group, and no flags.
    body.extend([0xff; 12]);
    body.extend([0; 4]);
    // The match type is OFPMT_OXM; the match is padded to 8 bytes.
    let size = 4 + fields.len();
    body.extend([0, 1]);
    body.extend((size as u16).to_be_bytes());
    body.extend(&fields);
    body.extend(vec![0; size.next_multiple_of(8) - size]);
    if command == FlowModCommand::Add {
        // The instruction is OFPIT_APPLY_ACTIONS with one OFPAT_OUTPUT.
        body.extend([0, 4, 0, 24, 0, 0, 0, 0]);
        body.extend([0, 0, 0, 16]);
        body.extend(Sink::First.port().to_be_bytes());
        body.extend([0xff, 0xff, 0, 0, 0, 0, 0, 0]);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Returns the address of a switch that replies to echoes and barriers, and its thread, which returns the number
    /// of flow_mods.
    fn switch() -> (String, std::thread::JoinHandle<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = format!("tcp:{}", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut mods = 0;
            while let Ok(request) = receive(&mut stream) {
                let reply = match request.kind {
                    ECHO_REQUEST => ECHO_REPLY,
                    BARRIER_REQUEST => BARRIER_REPLY,
                    FLOW_MOD => {
                        mods += 1;
                        continue;
                    }
                    _ => continue,
                };
                stream
                    .write_all(&message(reply, request.xid, &request.body))
                    .unwrap();
            }
            mods
        });
        (target, thread)
    }

    #[test]
    fn an_echo_is_answered() {
        let (target, thread) = switch();
        let mut channel = Channel::connect(&target).unwrap();
        assert!(channel.echo().unwrap() < Duration::from_secs(5));
        drop(channel);
        assert_eq!(thread.join().unwrap(), 0);
    }

    #[test]
    fn flow_mods_are_confirmed_by_barriers() {
        let (target, thread) = switch();
        let channel = Channel::connect(&target).unwrap();
        let header = Header::udp(1, 2, 3, 4);
        let taken = channel
            .flow_mods(&[header], 1000, Duration::from_millis(300))
            .unwrap();
        let counts: Vec<u64> = taken.accepted.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [0, 100, 200, 300]);
        assert_eq!(thread.join().unwrap(), 300);
    }

    #[test]
    fn flow_mods_that_are_accepted_after_a_window_do_not_count_in_it() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        // The switch keeps up before the window from 300 to 1,800 ms, accepts a fifth in it, and the rest at its end.
        let mut accepted: Vec<(Instant, u64)> = (0..=3).map(|n| (at(n * 100), n * 1000)).collect();
        accepted.extend((1..=3).map(|n| (at(300 + n * 500), 3000 + n * 1000)));
        accepted.extend((7..=21).map(|n| (at(1800 + n), n * 1000)));
        let taken = FlowModResult { accepted };
        let rate = |from, to| taken.rate(at(from), at(to)).round();
        assert_eq!(
            (rate(0, 300), rate(300, 1800), rate(50, 250)),
            (10_000.0, 2000.0, 10_000.0)
        );
        assert_eq!(rate(0, 2100), 10_000.0);
    }

    #[test]
    fn a_growing_table_is_confirmed_to_the_last_entry() {
        let (target, thread) = switch();
        let headers: Vec<_> = (0..5500).map(|port| Header::udp(1, 2, port, 4)).collect();
        let grown = Channel::connect(&target).unwrap().grow(&headers).unwrap();
        assert_eq!(grown.accepted, 5500);
        assert!(grown.last_fifth > 0.0 && grown.seconds > 0.0);
        assert_eq!(thread.join().unwrap(), 5500);
    }

    #[test]
    fn a_flow_mod_has_the_length_of_its_parts() {
        let body = flow_mod(&Header::udp(1, 2, 3, 4), FlowModCommand::Add);
        // The fixed part is 40 bytes long; the match 4 + 6 + 5 + 8 + 8 + 6 + 6 = 43, padded to 48; the instruction 24.
        assert_eq!(body.len(), 40 + 48 + 24);
        assert_eq!(body[40..44], [0, 1, 0, 43]);
        assert_eq!(
            flow_mod(&Header::udp(1, 2, 3, 4), FlowModCommand::DeleteStrict).len(),
            40 + 48
        );
    }
}
