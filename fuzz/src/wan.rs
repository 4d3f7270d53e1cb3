//! The WAN emulator: texts that people write, files that tools write, and frames through any path.

use millrace_types::Time;
use millrace_wan_emulator::{
    DirectionConfig, DirectionId, NoSources, PathConfig, Plan, Scenario, Seed, heap_memory, netem, tables,
    too_big,
};

/// Reads the bytes as settings, as the grammar of netem, and as a scenario; the first line says which.
///
/// Properties: an error is one line; what is accepted is printed so that it is read as the same path.
pub(crate) fn text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let (kind, rest) = text.split_once('\n').unwrap_or((text, ""));
    match kind {
        "netem" => match netem::parse(rest) {
            Ok(parsed) => read_again(&parsed.path),
            Err(error) => assert!(!error.to_string().is_empty()),
        },
        "scenario" => match Scenario::parse(rest) {
            Ok(scenario) => {
                let mut path = PathConfig::default();
                for step in &scenario.steps {
                    step.apply(&mut path).expect("a step was read before");
                    read_again(&path);
                }
            }
            Err(error) => assert!(error.to_string().starts_with("line ")),
        },
        _ => read_again(&settings(text)),
    }
}

/// Returns the path of lines `key text`, without those that are refused.
fn settings(text: &str) -> PathConfig {
    let mut path = PathConfig::default();
    for line in text.lines() {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        let before = path.clone();
        if let Err(error) = path.set(key, value) {
            assert_eq!(error.key, key);
            assert_eq!(path, before, "a refused text changes nothing");
        }
    }
    path
}

fn read_again(path: &PathConfig) {
    let mut again = PathConfig::default();
    for key in PathConfig::KEYS {
        let text = path.text(key.name).expect("every key has a text");
        again
            .set(key.name, &text)
            .unwrap_or_else(|error| panic!("printed, and refused: {error}"));
    }
    assert_eq!(again, *path);
    let json = serde_json::to_string(path).unwrap();
    assert_eq!(serde_json::from_str::<PathConfig>(&json).unwrap(), *path);
}

/// Reads the bytes as each of the files that a setting can name, and drives a path with those that are valid.
///
/// Properties: an error names a line; a path of a valid file never releases a frame early.
pub(crate) fn files(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let results = [
        tables::distribution(text).err(),
        tables::losses(text).err(),
        tables::delays(text).err(),
        tables::opportunities(text).err(),
    ];
    for error in results.into_iter().flatten() {
        let error = error.to_string();
        assert!(
            error.starts_with("line ") || error.starts_with("the file is empty"),
            "{error}"
        );
    }
    let source = |_: &str| Ok(text.to_owned());
    for (key, value) in [
        ("jitter", "1ms,table:x"),
        ("loss", "trace:x"),
        ("delay", "trace:x"),
        ("rate", "mahimahi:x"),
    ] {
        let mut config = PathConfig::default();
        config.set(key, value).unwrap();
        if let Ok(mut path) = millrace_wan_emulator::Path::new(&config, Seed::new(1), &source) {
            for number in 0..100u64 {
                let arrival = Time::from_nanos(number * number * 1_000_000);
                for outcome in path.offer_sized(arrival, 1514) {
                    if let millrace_wan_emulator::Outcome::Released(release) = outcome {
                        assert!(release.at >= arrival, "early");
                    }
                }
            }
        }
    }
}

/// Reads settings up to an empty line, and frames after it: two bytes of size, two of time, two of pause. Some frames carry the
/// fuzzer's own bytes.
///
/// Properties: offered + duplicated = released + dropped by name, no frame is early, and the order is that of release.
pub(crate) fn frames(bytes: &[u8]) {
    let split = bytes
        .windows(2)
        .position(|pair| pair == b"\n\n")
        .unwrap_or(bytes.len());
    let (text, script) = (&bytes[..split], bytes.get(split + 2..).unwrap_or_default());
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    // A queue in packets may take any memory; no path here needs more.
    if text.contains("packets") && text.len() > 200 {
        return;
    }
    let config = DirectionConfig {
        path: settings(text),
        bypass: vec![millrace_wan_emulator::Bypass::ArpNd],
        ..DirectionConfig::default()
    };
    let plan = |memory: Option<&str>| {
        let memory = memory.map(|memory| memory.parse().unwrap());
        let config = DirectionConfig {
            memory,
            ..config.clone()
        };
        Plan::new(&config, Seed::new(9), DirectionId::Forward, &NoSources)
    };
    let Ok(plan) = plan(None).or_else(|_| plan(Some("4MiB"))) else {
        return;
    };
    if plan.memory_size() > 64 << 20 {
        return;
    }
    let memory = heap_memory(plan.memory_size());
    let Ok(mut halves) = plan.start(memory, Time::ZERO) else {
        return;
    };
    let (sender, receiver) = (&mut halves.sender, &mut halves.receiver);
    let mut answer = Vec::with_capacity(too_big::REPLY_MAX);
    let mut now = 0u64;
    let mut last = Time::ZERO;
    let mut buffer = vec![0; 1 << 16];
    for step in script.chunks_exact(6) {
        let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5].map(|at| u64::from(step[at]));
        let mut frame = vec![0; ((a << 8 | b) % 9001) as usize];
        let own = script.len().min(frame.len());
        frame[..own].copy_from_slice(&script[..own]);
        now += (c << 8 | d) << (e % 24);
        let is_answered = too_big::reply(&frame, 1280, &mut answer);
        assert_eq!(is_answered, !answer.is_empty());
        assert_eq!(answer.capacity(), too_big::REPLY_MAX, "allocated");
        assert!(
            !too_big::reply(&answer.clone(), 68, &mut answer),
            "an ICMP error is answered"
        );
        for _ in 0..=f % 8 {
            sender.offer(Time::from_nanos(now), 0, &frame);
        }
        sender.publish();
        if f & 0x80 != 0 {
            let due = receiver.next_due();
            while let Some(frame) = receiver.take(Time::from_nanos(now)) {
                assert!(frame.release() <= Time::from_nanos(now), "early");
                assert!(due.is_some_and(|due| due <= frame.release()), "next_due is late");
                assert!(frame.release() >= last, "out of order");
                last = frame.release();
                frame.copy_to(&mut buffer);
            }
            receiver.free();
        }
    }
    while receiver.take(Time::from_nanos(u64::MAX)).is_some() {}
    while let Some(frame) = halves.icmp_errors.take() {
        frame.copy_to(&mut buffer);
    }
    let stats = halves.controller.stats();
    assert_eq!(stats.in_flight, 0);
    assert_eq!(
        stats.offered + stats.duplicated,
        stats.released + stats.dropped_in_all()
    );
}
