//! Faulty modules: each is rejected when it is created, or ends with a reason. The switch is not affected.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use millrace_loader::WASM;
use millrace_nf::{Buffer, Context, Function, Kind, Limits, Settings, Verdict, reason_of};
use millrace_types::{PortNo, Time};
use millrace_wire::Frame;

/// A module with replaceable parts. Its burst buffer is at 65536, and its texts are at 1024.
struct Wat {
    memory: &'static str,
    describe: String,
    make: &'static str,
    process: &'static str,
    more: &'static str,
}

/// The time limit of a burst for tests. Threads may be suspended for longer than the default of 20 ms.
const PATIENT: Option<Duration> = Some(Duration::from_secs(3600));

const DESCRIPTION: &str = "millrace-nf 1\\0aname test\\0acounter seen\\0awrites 1\\0a";

impl Default for Wat {
    fn default() -> Wat {
        Wat {
            memory: "(memory (export \"memory\") 4)",
            // The address 1024 and the size of the text. Each line end is escaped with three bytes.
            describe: format!(
                "(i64.const {})",
                1024 | (DESCRIPTION.replace("\\0a", "\n").len() as u64) << 32
            ),
            make: "(i64.const 0)",
            process: "",
            more: "",
        }
    }
}

impl Wat {
    fn text(&self) -> String {
        format!(
            r#"(module {} (data (i32.const 1024) "{DESCRIPTION}")
            (func (export "millrace_nf_describe") (result i64) {})
            (func (export "millrace_nf_text") (param i32) (result i32) (i32.const 4096))
            (func (export "millrace_nf_make") (param i32 i64 i64) (result i64) {})
            (func (export "millrace_nf_room") (param i32) (result i32) (i32.const 65536))
            (func (export "millrace_nf_counters") (result i32) (i32.const 8192))
            (func (export "millrace_nf_process") (param i32 i64 i32) (local $i i32) {})
            {})"#,
            self.memory, self.describe, self.make, self.process, self.more
        )
    }

    fn load(&self) -> Result<&'static Kind, String> {
        load(&wat::parse_str(self.text()).unwrap())
    }

    fn make(&self) -> Result<Box<dyn Function>, String> {
        self.make_with(PATIENT)
    }

    fn make_with(&self, burst_time: Option<Duration>) -> Result<Box<dyn Function>, String> {
        let kind = self.load()?;
        let mut setup = kind.setup(&Settings::default(), 1, 0);
        setup.limits = Limits {
            memory: Some(1 << 20),
            fuel: Some(1_000_000),
            burst_time,
        };
        kind.make_function(&setup).map_err(|error| error.to_string())
    }

    /// Returns the reason why the module fails with a burst.
    fn ends(&self) -> String {
        self.ends_with(PATIENT)
    }

    fn ends_with(&self, burst_time: Option<Duration>) -> String {
        let mut function = self.make_with(burst_time).unwrap();
        match run(&mut *function) {
            Ok(verdicts) => panic!("it goes on: {verdicts:?}"),
            Err(reason) => reason,
        }
    }
}

/// Creates a function without settings.
fn make_of(kind: &'static Kind) -> Result<Box<dyn Function>, String> {
    let mut setup = kind.setup(&Settings::default(), 0, 0);
    setup.limits.burst_time = PATIENT;
    kind.make_function(&setup).map_err(|error| error.to_string())
}

fn load(bytes: &[u8]) -> Result<&'static Kind, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("module.wasm");
    std::fs::write(&path, bytes).unwrap();
    (WASM.load)(&path)
}

/// Processes a burst of two packets, and returns the verdicts and the packets.
fn run(function: &mut dyn Function) -> Result<Vec<(Verdict, Vec<u8>)>, String> {
    let mut frames = [Frame::new(&[7; 60]), Frame::new(&[8; 1500])];
    let mut verdicts = [Verdict::Next; 2];
    let mut burst: Vec<&mut dyn Buffer> = frames.iter_mut().map(|frame| frame as &mut dyn Buffer).collect();
    let process = || function.process(&Context::default(), &mut burst, &mut verdicts);
    catch_unwind(AssertUnwindSafe(process)).map_err(|payload| reason_of(&*payload))?;
    drop(burst);
    let frames = frames.iter().map(|frame| frame.bytes().to_vec());
    Ok(verdicts.into_iter().zip(frames).collect())
}

#[test]
fn one_that_does_nothing_lets_packets_pass() {
    let mut function = Wat::default().make().unwrap();
    let passed = vec![(Verdict::Next, vec![7; 60]), (Verdict::Next, vec![8; 1500])];
    assert_eq!(run(&mut *function), Ok(passed));
    function.tick(Time::ZERO);
}

#[test]
fn verdicts_and_new_bounds_are_carried_out() {
    // The first packet grows by the bytes 1, 2, 3, 4. The second one shrinks by ten bytes and leaves at port 9.
    let wat = Wat {
        process: "(i32.store (i32.const 65540) (i32.const 124)) (i32.store (i32.const 65544) (i32.const 64))
            (i32.store (i32.const 65708) (i32.const 0x04030201))
            (i32.store (i32.const 65564) (i32.const 138)) (i32.store (i32.const 65568) (i32.const 1490))
            (i32.store (i32.const 65576) (i32.const 3)) (i32.store (i32.const 65580) (i32.const 9))",
        ..Wat::default()
    };
    let came = run(&mut *wat.make().unwrap()).unwrap();
    assert_eq!(came[0].0, Verdict::Next);
    assert_eq!((came[0].1.len(), &came[0].1[..6]), (64, &[1, 2, 3, 4, 7, 7][..]));
    assert_eq!(came[1], (Verdict::ToPort(PortNo::from_raw(9)), vec![8; 1490]));
}

#[test]
fn one_that_never_ends_runs_out_of_fuel() {
    let wat = Wat {
        process: "(loop $again (br $again))",
        ..Wat::default()
    };
    assert_eq!(wat.ends(), "it took more than its 1000000 units of fuel");
}

#[test]
fn one_that_does_much_with_little_fuel_runs_out_of_time() {
    let wat = Wat {
        process: "(loop $again (memory.fill (i32.const 0) (i32.const 0) (i32.const 262144)) (br $again))",
        ..Wat::default()
    };
    assert_eq!(
        wat.ends_with(Some(Duration::from_millis(200))),
        "it took longer than 200 ms for a burst, or 20 s to start"
    );
}

#[test]
fn traps_and_accesses_out_of_bounds_end_it() {
    let told = |process| {
        Wat {
            process,
            ..Wat::default()
        }
        .ends()
    };
    assert!(told("unreachable").contains("wasm trap: wasm `unreachable`"));
    assert!(told("(drop (i32.load (i32.const -8)))").contains("out of bounds memory access"));
    assert!(told("(i32.store (i32.const 262144) (i32.const 1))").contains("out of bounds memory access"));
    assert!(told("(drop (i32.div_u (i32.const 1) (local.get $i)))").contains("divide by zero"));
    let deep = Wat {
        process: "(call $down)",
        more: "(func $down (call $down))",
        ..Wat::default()
    };
    let reason = deep.ends();
    assert!(
        reason.contains("call stack exhausted") || reason.contains("fuel"),
        "{reason}"
    );
}

#[test]
fn memory_beyond_its_limit_is_not_given() {
    let grows = Wat {
        process: "(if (i32.ne (memory.grow (i32.const 1000)) (i32.const -1)) (then unreachable))",
        ..Wat::default()
    };
    assert!(run(&mut *grows.make().unwrap()).is_ok(), "it was not given any");
    let greedy = Wat {
        memory: "(memory (export \"memory\") 1000)",
        ..Wat::default()
    };
    // 62.5 MiB: the limit is 64 MiB for the description, so only the creation fails.
    let error = greedy.make().err().unwrap();
    assert!(error.contains("memory"), "{error}");
}

#[test]
fn invalid_sizes_and_verdicts_end_it() {
    let told = |process| {
        Wat {
            process,
            ..Wat::default()
        }
        .ends()
    };
    // The size and the offset of the first packet.
    for (place, number) in [
        (65544, 100_000),
        (65544, -1),
        (65540, -1),
        (65540, 0),
        (65544, 61),
    ] {
        let text = format!("(i32.store (i32.const {place}) (i32.const {number}))");
        let reason = told(text.leak());
        assert!(reason.contains("it reports a packet of"), "{reason}");
    }
    assert!(told("(i32.store (i32.const 65552) (i32.const 4))").contains("verdict 4"));
    assert!(
        told("(i32.store (i32.const 65552) (i32.const 1)) (i32.store (i32.const 65556) (i32.const 256))")
            .contains("verdict 1 with operand 256")
    );
}

#[test]
fn modules_that_are_not_functions_are_rejected() {
    let told = |bytes: &[u8]| load(bytes).unwrap_err();
    assert!(told(b"hello").contains("not a WebAssembly module"));
    assert!(told(b"\0asm\x01\0\0\0garbage").contains("not a module"));
    let module = |text: &str| told(&wat::parse_str(text).unwrap());
    assert!(module("(module)").contains("no `memory`"));
    assert!(module("(module (memory (export \"memory\") 1))").contains("millrace_nf_describe"));
    assert!(module("(module (import \"env\" \"open\" (func)))").contains("imports `env.open`"));
    assert!(
        module("(module (memory (export \"memory\") 1) (func $s unreachable) (start $s))")
            .contains("cannot be instantiated")
    );
    let full = Wat::default().text();
    for name in ["text", "make", "room", "counters", "process"] {
        let text = full.replace(&format!("\"millrace_nf_{name}\""), "\"other\"");
        let kind = load(&wat::parse_str(text).unwrap()).unwrap();
        let error = make_of(kind).err().unwrap();
        assert!(error.contains(&format!("millrace_nf_{name}")), "{error}");
    }
    let described = |describe: &str| {
        let wat = Wat {
            describe: describe.to_owned(),
            ..Wat::default()
        };
        wat.load().unwrap_err()
    };
    assert!(described("(i64.const -1)").contains("not within its memory"));
    assert!(
        described("(i64.const 0x1000000400)").contains("counter")
            || described("(i64.const 0x1000000400)").contains("line")
    );
    let endless = described("(loop $again (br $again)) unreachable");
    assert!(
        endless.contains("fuel") || endless.contains("2 s to start"),
        "{endless}"
    );
    // A module whose tables never end is also refused. The message has its fuel or the time limit.
    let text = Wat::default()
        .text()
        .replace("(i32.const 65536))", "(loop $again (br $again)) unreachable)");
    let kind = load(&wat::parse_str(text).unwrap()).unwrap();
    let made = kind.make_function(&kind.setup(&Settings::default(), 0, 0));
    let endless = made.err().unwrap().to_string();
    assert!(
        endless.contains("2000000000 units of fuel") || endless.contains("2 s to start"),
        "{endless}"
    );
    assert!(
        (WASM.load)("module.wasm".as_ref())
            .unwrap_err()
            .contains("absolute")
    );
    assert!(
        (WASM.load)("/nowhere/module.wasm".as_ref())
            .unwrap_err()
            .contains("cannot be read")
    );
    assert!(
        (WASM.load)("/dev/zero".as_ref())
            .unwrap_err()
            .contains("expected a file")
    );
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    assert!((WASM.load)(&pipe).unwrap_err().contains("expected a file"));
}

#[test]
fn buffers_outside_of_its_memory_are_rejected() {
    for (from, to) in [
        ("(i32.const 65536))", "(i32.const 200000))"),
        ("(result i32) (i32.const 8192)", "(result i32) (i32.const -4)"),
        ("(i32.const 4096)", "(i32.const -1)"),
    ] {
        let text = Wat::default().text().replace(from, to);
        let kind = load(&wat::parse_str(text).unwrap()).unwrap();
        // An empty text may be anywhere but beyond the end of the memory.
        let error = make_of(kind).err().unwrap_or_else(|| panic!("{to} is taken"));
        assert!(error.contains("within its memory"), "{error}");
    }
    let refuses = Wat {
        make: "(i64.const 0x0d00000400)",
        ..Wat::default()
    };
    assert!(
        refuses.make().err().unwrap().contains("millrace-nf 1"),
        "its own words"
    );
}
