//! Messages of a memif peer, and the memory that it shares.

use millrace_memif::client::{self, ClientConfig, Layout};
use millrace_memif::region::{Regions, UnsealedPolicy};
use millrace_memif::ring::{Rings, Sink, WORK_MAX};
use millrace_memif::server::{self, Limits, Offer};
use millrace_memif::{Direction, MESSAGE_SIZE, Message, MessageError, Name, REGIONS_MAX, REGIONS_SIZE_MAX};

/// Sends messages one after the other to a server and to a client, each with a byte that decides whether a file
/// descriptor accompanies it.
///
/// Properties: a decoded message encodes to the same message; regions and rings of an offer are within the limits,
/// rings lie in their regions; a client's memory is within its limit.
pub(crate) fn messages(bytes: &[u8]) {
    let config = ClientConfig {
        to_server: 2,
        to_client: 2,
        log2_len: 10,
        buffer_size: 2048,
    };
    let mut server = Some(server::Session::<()>::default());
    let mut client = Some(client::Session::new(1, "fuzz", "m1", config));
    for part in bytes.chunks(1 + MESSAGE_SIZE) {
        let Some((how, said)) = part.split_first() else {
            return;
        };
        let mut said = said.to_vec();
        // Short messages are sometimes padded, so that fuzzers find valid ones.
        if how & 2 == 0 {
            said.resize(MESSAGE_SIZE, 0);
        }
        let Ok(message) = Message::decode(&said) else {
            continue;
        };
        assert_eq!(Message::decode(&message.encode()), Ok(message));
        let file = (how & 1 == 0).then_some(());
        if let Some(session) = &mut server {
            let step = session.receive(&message, file, |id| match id {
                0..4 => Ok(Limits {
                    to_server: 2,
                    to_client: 3,
                }),
                id => Err(MessageError::NoInterface { id }),
            });
            match step {
                Ok(server::Step::Reply(_)) => {}
                Ok(server::Step::Connect(offer)) => look_at(&offer),
                Ok(server::Step::Closed) | Err(_) => server = None,
            }
        }
        if let Some(session) = &mut client {
            match session.receive(&message) {
                Ok(client::Step::Begin(layout, _)) => assert!(layout.size() <= 1 << 30),
                Ok(_) => {}
                Err(_) => client = None,
            }
        }
    }
}

fn look_at(offer: &Offer<()>) {
    assert!(offer.regions.len() <= REGIONS_MAX);
    assert!(offer.regions.iter().map(|(size, ())| size).sum::<u64>() <= REGIONS_SIZE_MAX);
    assert!((1..=2).contains(&offer.to_server.len()) && (1..=3).contains(&offer.to_client.len()));
    for rings in [&offer.to_server, &offer.to_client] {
        for (at, (ring, ())) in rings.iter().enumerate() {
            assert_eq!(usize::from(ring.index), at);
            let (size, ()) = offer.regions[usize::from(ring.region)];
            assert!(u64::from(ring.offset) + 128 + (16 << ring.log2_len) <= size);
        }
    }
}

/// Received frames.
struct Frames {
    sizes: Vec<usize>,
    bytes: [u8; 4096],
}

impl Sink for Frames {
    fn allocate(&mut self, size: usize) -> Option<&mut [u8]> {
        let bytes = self.bytes.get_mut(..size)?;
        self.sizes.push(size);
        Some(bytes)
    }
}

/// A peer that writes into all of the memory, an offset and a few bytes at a time, while frames are sent and received;
/// as the client or, depending on the first byte, as the server.
///
/// Properties: no access leaves the memory; no burst exceeds the requested length or the bound on work; a dropped
/// frame was empty or too long.
pub(crate) fn ring(bytes: &[u8]) {
    let Some((role, mut rest)) = bytes.split_first() else {
        return;
    };
    let layout = Layout::new(ClientConfig {
        to_server: 1,
        to_client: 1,
        log2_len: role >> 1 & 7,
        buffer_size: 64,
    });
    let size = layout.size() as u64;
    let Ok((client, file)) = Rings::create(&layout) else {
        return;
    };
    let copy = || file.try_clone().unwrap();
    let ring = |direction| vec![(layout.ring(direction, 0), copy())];
    let offer = Offer {
        program: Name::default(),
        interface: Name::default(),
        regions: vec![(size, copy())],
        to_server: ring(Direction::ToServer),
        to_client: ring(Direction::ToClient),
    };
    let peer = Regions::open([(size, copy())], UnsealedPolicy::Reject).unwrap();
    let (server, _interrupts) = Rings::open(offer, UnsealedPolicy::Reject).unwrap();
    let mut rings = if role & 1 == 0 { server } else { client };
    for receiver in &mut rings.receivers {
        receiver.begin();
    }
    let mut frames = Frames {
        sizes: Vec::new(),
        bytes: [0; 4096],
    };
    while let Some(([what, low, high, value], more)) = rest.split_first_chunk::<4>() {
        rest = more;
        let number = u16::from_le_bytes([*low, *high]);
        match what & 7 {
            0 => {
                frames.sizes.clear();
                let wanted = usize::from(*value);
                let receiver = &mut rings.receivers[0];
                let Ok(received) = receiver
                    .ready()
                    .and_then(|_| receiver.receive(wanted, &mut frames))
                else {
                    return;
                };
                assert!(received.frames <= wanted && received.frames == frames.sizes.len());
                assert!(received.frames + received.dropped <= usize::from(WORK_MAX));
                assert!(frames.sizes.iter().all(|size| (1..=4096).contains(size)));
            }
            1 => {
                let frame = vec![*value; usize::from(number) % 3000];
                let sender = &mut rings.senders[0];
                if sender.ready().and_then(|_| sender.send(&frame)).is_err() {
                    return;
                }
                sender.publish();
            }
            // An index or a descriptor of one of the rings, or any other bytes.
            2..=5 => {
                let direction = if what & 1 == 0 {
                    Direction::ToServer
                } else {
                    Direction::ToClient
                };
                let place = layout.ring(direction, 0).offset;
                let at = match what & 24 {
                    0 => 6,
                    8 => 64,
                    _ => 128 + u32::from(*value) % (16 << (role >> 1 & 7)),
                };
                if let Ok(place) = peer.buffer(0, place + at, 2) {
                    place.write(&number.to_le_bytes());
                }
            }
            _ => {
                if let Ok(place) = peer.buffer(0, u32::from(number), 1) {
                    place.write(&[*value]);
                }
            }
        }
    }
}
