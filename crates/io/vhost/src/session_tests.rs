//! A device that only records calls, driven by valid and invalid sequences of messages.

use proptest::prelude::*;

use super::*;

/// Records which rings run. It fails the test if a ring starts twice or without memory, or runs while memory
/// changes.
#[derive(Default)]
struct RecordingDevice {
    regions: usize,
    running: Vec<(u16, RingConfig)>,
    starts: usize,
    calls: Vec<(u16, Option<u8>)>,
    refuses: bool,
}

impl Device for RecordingDevice {
    type Fd = u8;

    fn share(&mut self, memory: Vec<(MemoryRegion, u8)>) -> Result<(), MessageError> {
        assert!(self.running.is_empty(), "memory goes under a ring that runs");
        self.regions = memory.len();
        if self.refuses {
            return Err(MessageError::Short);
        }
        Ok(())
    }

    fn start(&mut self, ring: u16, config: &RingConfig) -> Result<(), MessageError> {
        assert!(self.running.iter().all(|(other, _)| *other != ring));
        assert!(self.regions > 0, "a ring without memory");
        self.running.push((ring, *config));
        self.starts += 1;
        Ok(())
    }

    fn stop(&mut self, ring: u16) -> Option<u32> {
        let at = self.running.iter().position(|(other, _)| *other == ring).unwrap();
        // Ten packets passed through the ring.
        Some(self.running.remove(at).1.base + 10)
    }

    fn call(&mut self, ring: u16, file: Option<u8>) {
        self.calls.push((ring, file));
    }
}

const AT: Addresses = Addresses {
    descriptors: 0x1000,
    driver: 0x2000,
    device: 0x3000,
};
const REGION: MemoryRegion = MemoryRegion {
    guest: 0,
    size: 4096,
    user: 0,
    offset: 0,
};

fn plain() -> Features {
    Features::offered(false)
}

/// Sends a message; returns the number in the reply, if there is one.
fn request(session: &mut Session, device: &mut RecordingDevice, message: Message) -> Option<u64> {
    let fds = vec![7; message.fds()];
    let reply = session.receive(message, false, fds, device).unwrap()?;
    let bytes = reply.encode();
    Some(u64::from_le_bytes(bytes[12..].try_into().unwrap()))
}

fn of(ring: u32, message: RingMessage) -> Message {
    Message::Ring(ring, message)
}

fn describe(session: &mut Session, device: &mut RecordingDevice, ring: u32) {
    for message in [
        RingMessage::Size(256),
        RingMessage::Base(0),
        RingMessage::Addresses(AT),
        RingMessage::Call { has_fd: true },
        RingMessage::Kick { has_fd: true },
    ] {
        request(session, device, of(ring, message));
    }
}

/// Sends the first messages of DPDK's virtio-user.
fn begin(session: &mut Session, device: &mut RecordingDevice) {
    request(session, device, Message::SetOwner);
    let offered = request(session, device, Message::GetFeatures).unwrap();
    request(session, device, Message::GetProtocolFeatures);
    request(
        session,
        device,
        Message::SetProtocolFeatures(MANY_QUEUES | ACKNOWLEDGE),
    );
    request(session, device, Message::SetFeatures(offered));
    request(session, device, Message::SetMemory(vec![REGION]));
    for ring in [0, 1] {
        describe(session, device, ring);
    }
    assert!(!session.is_up(), "rings are not enabled yet");
    for ring in [0, 1] {
        request(session, device, of(ring, RingMessage::Enable(true)));
    }
    assert!(session.is_up());
}

#[test]
fn a_driver_that_knows_of_enabling_enables_and_one_that_does_not_need_not() {
    let mut device = RecordingDevice::default();
    begin(&mut Session::new(1, plain()), &mut device);
    assert_eq!(device.starts, 2);

    let (mut session, mut device) = (Session::new(1, plain()), RecordingDevice::default());
    request(
        &mut session,
        &mut device,
        Message::SetFeatures(Features::VERSION_1.bits()),
    );
    request(&mut session, &mut device, Message::SetMemory(vec![REGION]));
    describe(&mut session, &mut device, 0);
    assert!(session.is_running(0) && !session.is_up());
    describe(&mut session, &mut device, 1);
    assert!(session.is_up());
    assert_eq!(device.running[1].1.features, Features::VERSION_1);
}

#[test]
fn a_ring_goes_on_where_it_was_after_whatever_stopped_it() {
    let (mut session, mut device) = (Session::new(1, plain()), RecordingDevice::default());
    begin(&mut session, &mut device);
    request(&mut session, &mut device, of(1, RingMessage::Enable(false)));
    assert!(!session.is_up());
    request(&mut session, &mut device, of(1, RingMessage::Enable(true)));
    assert_eq!(device.running.last().unwrap().1.base, 10);
    // Memory was hot-plugged.
    request(
        &mut session,
        &mut device,
        Message::SetMemory(vec![REGION, REGION]),
    );
    assert_eq!(device.running.len(), 2);
    assert_eq!(device.running[1].1.base, 20);
    let answer = request(&mut session, &mut device, of(1, RingMessage::Stop)).unwrap();
    assert_eq!(answer, 30 << 32 | 1);
    assert!(!session.is_running(1));
    let again = request(&mut session, &mut device, of(1, RingMessage::Stop)).unwrap();
    assert_eq!(again, answer);
    request(
        &mut session,
        &mut device,
        of(1, RingMessage::Kick { has_fd: true }),
    );
    assert_eq!(device.running.last().unwrap().1.base, 30);
    session.end(&mut device);
    assert!(device.running.is_empty());
}

#[test]
fn a_bell_may_change_while_a_ring_runs() {
    let (mut session, mut device) = (Session::new(1, plain()), RecordingDevice::default());
    begin(&mut session, &mut device);
    device.calls.clear();
    request(
        &mut session,
        &mut device,
        of(0, RingMessage::Call { has_fd: false }),
    );
    request(
        &mut session,
        &mut device,
        of(1, RingMessage::Call { has_fd: true }),
    );
    assert_eq!(device.calls, [(0, None), (1, Some(7))]);
    assert_eq!(device.starts, 2, "nothing was stopped");
}

#[test]
fn what_is_said_again_stops_nothing() {
    let (mut session, mut device) = (Session::new(1, plain()), RecordingDevice::default());
    begin(&mut session, &mut device);
    let features = session.features().bits();
    for message in [
        Message::SetFeatures(features),
        Message::SetOwner,
        of(0, RingMessage::Enable(true)),
        of(0, RingMessage::Kick { has_fd: true }),
    ] {
        request(&mut session, &mut device, message);
    }
    assert_eq!(device.starts, 2);
}

#[test]
fn who_wants_an_answer_gets_one_if_that_was_agreed_upon() {
    let (mut session, mut device) = (Session::new(1, plain()), RecordingDevice::default());
    let mut ask = |session: &mut Session, message: Message| {
        session.receive(message, true, Vec::new(), &mut device).unwrap()
    };
    assert_eq!(ask(&mut session, Message::SetOwner), None);
    let agreed = ask(&mut session, Message::SetProtocolFeatures(ACKNOWLEDGE));
    assert_eq!(agreed, Some(Reply::number(16, 0)));
    let owner = ask(&mut session, Message::SetOwner);
    assert_eq!(owner, Some(Reply::number(3, 0)));
    let queues = ask(&mut session, Message::GetQueues);
    assert_eq!(queues, Some(Reply::number(17, 1)), "one answer");
}

#[test]
fn what_was_not_offered_is_refused() {
    let (mut session, mut device) = (Session::new(2, plain()), RecordingDevice::default());
    let mut refused = |message: Message| {
        let fds = vec![0; message.fds()];
        session.receive(message, false, fds, &mut device).unwrap_err()
    };
    let more = Message::SetFeatures(u64::MAX);
    assert!(matches!(refused(more), MessageError::Features { .. }));
    let more = Message::SetProtocolFeatures(1 << 12);
    assert_eq!(refused(more), MessageError::ProtocolFeatures { bits: 1 << 12 });
    for ring in [4, 255, u32::MAX] {
        let error = MessageError::RingNumber { ring, rings: 4 };
        assert_eq!(refused(of(ring, RingMessage::Size(256))), error);
        assert_eq!(refused(of(ring, RingMessage::Stop)), error);
    }
}

#[test]
fn memory_that_cannot_be_had_leaves_no_ring() {
    let (mut session, mut device) = (Session::new(1, plain()), RecordingDevice::default());
    begin(&mut session, &mut device);
    device.refuses = true;
    let message = Message::SetMemory(vec![REGION]);
    assert!(session.receive(message, false, vec![1], &mut device).is_err());
    assert!(device.running.is_empty());
}

fn of_ring() -> impl Strategy<Value = RingMessage> {
    prop_oneof![
        any::<u32>().prop_map(RingMessage::Size),
        Just(RingMessage::Addresses(AT)),
        (0..1000_u32).prop_map(RingMessage::Base),
        Just(RingMessage::Stop),
        any::<bool>().prop_map(|has_fd| RingMessage::Kick { has_fd }),
        any::<bool>().prop_map(|has_fd| RingMessage::Call { has_fd }),
        any::<bool>().prop_map(RingMessage::Enable),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        8 => (0..5_u32, of_ring()).prop_map(|(ring, message)| Message::Ring(ring, message)),
        1 => Just(Message::SetFeatures(Features::VERSION_1.bits())),
        1 => Just(Message::SetFeatures(plain().bits())),
        1 => Just(Message::ResetOwner),
        1 => (1..4_usize).prop_map(|regions| Message::SetMemory(vec![REGION; regions])),
    ]
}

proptest! {
    /// [`RecordingDevice`] fails the test if a ring runs without memory, runs twice, or runs while memory changes.
    #[test]
    fn in_whatever_order_things_are_said_no_ring_runs_that_must_not(
        messages in proptest::collection::vec(message(), 0..100),
    ) {
        let (mut session, mut device) = (Session::new(2, plain()), RecordingDevice::default());
        for message in messages {
            let fds = vec![0; message.fds()];
            if session.receive(message, false, fds, &mut device).is_err() {
                break;
            }
            let runs = |ring: u16| device.running.iter().any(|(other, _)| *other == ring);
            prop_assert!((0..4).all(|ring| runs(ring) == session.is_running(ring)));
        }
        session.end(&mut device);
        prop_assert!(device.running.is_empty());
    }
}
