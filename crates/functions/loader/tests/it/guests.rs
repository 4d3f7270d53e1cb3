//! Built-in functions compiled to modules, which have the same effect as inline.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use millrace_builtin::CATALOGUE;
use millrace_loader::WASM;
use millrace_nf::{Buffer, Context, Direction, Function, Kind, Settings, Setup, Verdict};
use millrace_types::{Duration, Mac, Time};
use millrace_wire::{Builder, Frame, tcp};

/// Builds the modules, and returns their folder, or `None` without a compiler for them.
fn modules() -> Option<&'static PathBuf> {
    static MODULES: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = MODULES.get_or_init(|| {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let output = Command::new(env!("CARGO"))
            // scripts/run-test-program.sh sets this variable. With it, build scripts that depend on it would
            // run again, and cargo would compile wasmtime again.
            .env_remove("RUSTC_BOOTSTRAP")
            .args(["xtask", "wasm"])
            .current_dir(&root)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let problem = String::from_utf8_lossy(&output.stderr).into_owned();
        if problem.contains("rustup target add") {
            return None;
        }
        assert!(output.status.success(), "{problem}");
        Some(PathBuf::from(text.trim()).canonicalize().unwrap())
    });
    if built.is_none() {
        eprintln!("not run: there is no compiler for wasm32-unknown-unknown");
    }
    built.as_ref()
}

fn both(name: &str, settings: &[&str]) -> Option<[(Box<dyn Function>, Setup); 2]> {
    let module = (WASM.load)(&modules()?.join(format!("{name}.wasm"))).unwrap();
    let kinds: [&Kind; 2] = [CATALOGUE.find(name).unwrap(), module];
    Some(kinds.map(|kind| {
        let mut setup = kind.setup(&Settings::parse(settings).unwrap(), 7, 0);
        // This thread may be suspended for longer than the 20 ms that a burst may take by default.
        setup.limits.burst_time = Some(Duration::from_secs(3600));
        (kind.make_function(&setup).unwrap(), setup)
    }))
}

fn packets(round: u16) -> Vec<Vec<u8>> {
    let ethernet = || Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]));
    let segment = |port: u16, flags: u16, back: bool| {
        let (src, dst) = (4000 + round, port);
        let (src, dst) = if back { (dst, src) } else { (src, dst) };
        let repr = tcp::Repr {
            src,
            dst,
            flags,
            ..tcp::Repr::default()
        };
        let (from, to) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let (from, to) = if back { (to, from) } else { (from, to) };
        ethernet().ipv4(from, to).tcp(repr).pad_to(60).build()
    };
    vec![
        segment(80, tcp::flags::SYN, false),
        segment(80, tcp::flags::SYN | tcp::flags::ACK, true),
        segment(22, tcp::flags::SYN, false),
        segment(80, tcp::flags::ACK, false),
        ethernet()
            .ipv4([10, 0, 0, 3], [10, 0, 0, 2])
            .udp(53, 53)
            .payload(&[1; 1400])
            .build(),
        vec![1, 2, 3],
        vec![0xff; 9000],
    ]
}

/// Returns the verdicts on packets, and the packets.
fn run(function: &mut dyn Function, round: u16) -> Vec<(Verdict, Vec<u8>)> {
    // Several burst buffers are needed.
    let mut frames: Vec<Frame> = packets(round)
        .iter()
        .cycle()
        .take(64)
        .map(|bytes| Frame::new(bytes))
        .collect();
    let mut burst: Vec<&mut dyn Buffer> = frames.iter_mut().map(|frame| frame as &mut dyn Buffer).collect();
    let mut verdicts = vec![Verdict::Next; burst.len()];
    let direction = match round.is_multiple_of(2) {
        true => Direction::Forward,
        false => Direction::Backward,
    };
    let context = Context::new(Time::from_secs(round.into()), direction);
    function.process(&context, &mut burst, &mut verdicts);
    drop(burst);
    verdicts
        .into_iter()
        .zip(frames.iter().map(|frame| frame.bytes().to_vec()))
        .collect()
}

fn same(name: &str, settings: &[&str]) {
    let Some([(mut inline, counts), (mut module, counted)]) = both(name, settings) else {
        return;
    };
    for round in 0..50 {
        assert_eq!(
            run(&mut *inline, round),
            run(&mut *module, round),
            "round {round}"
        );
        let now = Time::from_secs(round.into());
        inline.tick(now);
        module.tick(now);
        assert_eq!(counts.counters.read(), counted.counters.read(), "round {round}");
    }
    assert!(counts.counters.read().iter().any(|(_, value)| *value > 0));
}

#[test]
fn macswap_as_a_module_does_what_it_does_inline() {
    same("macswap", &[]);
}

#[test]
fn a_firewall_as_a_module_does_what_it_does_inline() {
    same(
        "firewall",
        &["rule=allow tcp port 80", "non_ip=allow", "connections=1000"],
    );
}

#[test]
fn settings_that_a_module_does_not_take_are_refused_in_its_words() {
    let Some(modules) = modules() else { return };
    let kind = (WASM.load)(&modules.join("firewall.wasm")).unwrap();
    let refused = |texts: &[&str]| {
        let setup = kind.setup(&Settings::parse(texts).unwrap(), 0, 0);
        kind.make_function(&setup).err().unwrap().to_string()
    };
    assert!(
        refused(&["rule=perhaps"]).contains("expected allow or deny"),
        "{}",
        refused(&["rule=perhaps"])
    );
    assert!(refused(&["colour=red"]).contains("`colour` is not known: expected rule, default"));
    assert!(
        refused(&["connections=16777216"]).contains("memory")
            || refused(&["connections=16777216"]).contains("wasm trap")
    );
}
