//! Functions in C, built with the header and run like functions in Rust.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use millrace_loader::{ANY_LIBRARY, LIBRARY};
use millrace_nf::{Buffer, Context, Direction, Function, Kind, Settings, Verdict, reason_of};
use millrace_testing::{compile_function, trusted_folder};
use millrace_types::{Mac, PortNo, Time};
use millrace_wire::{Builder, Frame};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn load(name: &str, text: &str) -> Result<&'static Kind, String> {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join(name);
    std::fs::write(&source, text).unwrap();
    (ANY_LIBRARY.load)(&compile_function(dir.path(), &source))
}

fn run(function: &mut dyn Function, context: &Context, packets: &[&[u8]]) -> Vec<(Verdict, Vec<u8>)> {
    let mut frames: Vec<Frame> = packets.iter().map(|bytes| Frame::new(bytes)).collect();
    let mut burst: Vec<&mut dyn Buffer> = frames.iter_mut().map(|frame| frame as &mut dyn Buffer).collect();
    let mut verdicts = vec![Verdict::Next; burst.len()];
    function.process(context, &mut burst, &mut verdicts);
    drop(burst);
    let frames = frames.iter().map(|frame| frame.bytes().to_vec());
    verdicts.into_iter().zip(frames).collect()
}

#[test]
fn the_example_lowers_the_time_to_live_and_counts() {
    let dir = tempfile::tempdir().unwrap();
    let object = compile_function(dir.path(), &root().join("examples/functions/ttl.c"));
    let kind = (ANY_LIBRARY.load)(&object).unwrap();
    assert_eq!((kind.name, kind.counters), ("ttl", &["lowered", "expired"][..]));
    let make = |settings: &[&str]| {
        let setup = kind.setup(&Settings::parse(settings).unwrap(), 1, 0);
        kind.make_function(&setup).map(|function| (function, setup))
    };
    let refused = |settings: &[&str]| make(settings).err().unwrap().to_string();
    assert_eq!(
        refused(&["minimum=300"]),
        "function ttl: `minimum=300`: expected minimum=1 to minimum=255"
    );
    assert!(refused(&["maximum=3"]).contains("`maximum` is not known: expected minimum"));
    let (mut function, setup) = make(&["minimum=2"]).unwrap();
    let packet = |ttl: u8| {
        let mut bytes = Builder::ethernet(Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]))
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(1, 2)
            .payload(&[0; 18])
            .build();
        let before = u16::from_be_bytes([bytes[22], bytes[23]]);
        bytes[22] = ttl;
        let after = u16::from_be_bytes([bytes[22], bytes[23]]);
        let sum = !u16::from_be_bytes([bytes[24], bytes[25]]);
        let sum = u32::from(sum) + u32::from(!before) + u32::from(after);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    let many: Vec<Vec<u8>> = (0..=255).map(packet).collect();
    let came = run(
        &mut *function,
        &Context::default(),
        &many.iter().map(Vec::as_slice).collect::<Vec<_>>(),
    );
    for (ttl, (verdict, bytes)) in came.into_iter().enumerate() {
        match ttl {
            0 | 1 => assert_eq!(verdict, Verdict::Drop),
            _ => assert_eq!((verdict, bytes), (Verdict::Next, packet(ttl as u8 - 1)), "{ttl}"),
        }
    }
    function.tick(Time::ZERO);
    assert_eq!(setup.counters.read(), [("lowered", 254), ("expired", 2)]);
}

const BODY: &str = r#"
#include <millrace_nf.h>
#include <string.h>
static uint64_t *counters;
static void *make(const millrace_nf_setup *s, char *reason, size_t size) {
    (void)reason; (void)size; counters = s->counters; return (void *)&counters;
}
static void process(void *f, const millrace_nf_context *c, millrace_nf_packet *b, millrace_nf_verdict *v, size_t len) {
    (void)f;
    for (size_t i = 0; i < len; i++) {
        counters[c->direction] += 1;
        v[i].what = b[i].head[0];
        v[i].operand = b[i].head[1];
        if (b[i].head[2] == 1 && millrace_nf_prepend(&b[i], 4) == 0) memcpy(b[i].head, "tag!", 4);
        if (b[i].head[2] == 2) millrace_nf_trim_front(&b[i], 3);
        if (b[i].head[2] == 3 && millrace_nf_prepend(&b[i], 1000) != -1) v[i].what = 2;
        if (b[i].head_size != b[i].size) v[i].what = 2;
    }
}
static void tick(void *f, uint64_t now) { (void)f; counters[2] = now; }
const millrace_nf_kind millrace_nf = { MILLRACE_NF_ABI, sizeof(millrace_nf_kind), DESCRIPTION, make, process, tick, 0 };
"#;

fn with(description: &str) -> String {
    format!("#define DESCRIPTION MILLRACE_NF_VERSION {description:?}\n{BODY}")
}

#[test]
fn verdicts_and_sizes_of_the_function_take_effect() {
    let kind = load(
        "says.c",
        &with("name says\ncounter forward\ncounter backward\ncounter now\nwrites 31\n"),
    )
    .unwrap();
    let setup = kind.setup(&Settings::default(), 1, 0);
    let mut function = kind.make_function(&setup).unwrap();
    let context = Context::new(Time::from_secs(1), Direction::Backward);
    let packets: [&[u8]; 5] = [
        &[0, 0, 0, 9],
        &[1, 7, 1, 9],
        &[3, 5, 2, 9],
        &[2, 0, 0, 9],
        &[0, 0, 3, 9],
    ];
    let wanted: [(Verdict, &[u8]); 5] = [
        (Verdict::Next, &[0, 0, 0, 9]),
        (Verdict::Skip(7), b"tag!\x01\x07\x01\x09"),
        (Verdict::ToPort(PortNo::from_raw(5)), &[9]),
        (Verdict::Drop, &[2, 0, 0, 9]),
        (Verdict::Next, &[0, 0, 3, 9]),
    ];
    let came = run(&mut *function, &context, &packets);
    let came: Vec<(Verdict, &[u8])> = came
        .iter()
        .map(|(verdict, bytes)| (*verdict, &bytes[..]))
        .collect();
    assert_eq!(came, wanted);
    function.tick(Time::from_nanos(77));
    assert_eq!(
        setup.counters.read(),
        [("forward", 0), ("backward", 5), ("now", 77)]
    );
    let process = AssertUnwindSafe(|| run(&mut *function, &context, &[&[9, 0, 0, 0]]));
    let reason = reason_of(&*catch_unwind(process).unwrap_err());
    assert_eq!(reason, "it returned the unknown verdict 9 with operand 0");
}

#[test]
fn a_function_may_use_its_setup_until_it_ends() {
    let text = r#"
#include <millrace_nf.h>
static const millrace_nf_setup *setup;
static void *make(const millrace_nf_setup *s, char *reason, size_t size) {
    (void)reason; (void)size; setup = s; return (void *)&setup;
}
static void process(void *f, const millrace_nf_context *c, millrace_nf_packet *b, millrace_nf_verdict *v, size_t len) {
    (void)f; (void)c; (void)b;
    for (size_t i = 0; i < len; i++) {
        setup->counters[0] += 1;
        v[i].what = setup->settings_len == 1 && setup->settings[0][0] == 'k' && setup->counters_len == 2 ? 0 : 2;
    }
}
static void tick(void *f, uint64_t now) { (void)f; (void)now; setup->counters[1] = setup->seed; }
const millrace_nf_kind millrace_nf = { MILLRACE_NF_ABI, sizeof(millrace_nf_kind),
    MILLRACE_NF_VERSION "name keeps\nsetting key a text\ncounter seen\ncounter seed\n", make, process, tick, 0 };
"#;
    let kind = load("keeps.c", text).unwrap();
    let setup = kind.setup(&Settings::parse(["key=value"]).unwrap(), 77, 0);
    let mut function = kind.make_function(&setup).unwrap();
    let came = run(&mut *function, &Context::default(), &[&[1; 60], &[2; 60]]);
    assert!(
        came.iter().all(|(verdict, _)| *verdict == Verdict::Next),
        "{came:?}"
    );
    function.tick(Time::ZERO);
    assert_eq!(setup.counters.read(), [("seen", 2), ("seed", 77)]);
}

#[test]
fn objects_that_are_not_functions_are_rejected() {
    let told = |name: &str, text: &str| load(name, text).unwrap_err();
    assert!(told("none.c", "int other;\n").contains("exports no `millrace_nf`"));
    let good = with("name good\n");
    assert!(told("old.c", &good.replace("{ MILLRACE_NF_ABI,", "{ 2,")).contains("version 2"));
    assert!(told("small.c", &good.replace("sizeof(millrace_nf_kind), D", "8, D")).contains("with 8 bytes"));
    assert!(
        told(
            "mute.c",
            &good.replace(
                "sizeof(millrace_nf_kind), DESCRIPTION",
                "sizeof(millrace_nf_kind), 0"
            )
        )
        .contains("no description")
    );
    assert!(
        told(
            "idle.c",
            &good
                .replace("make, process, tick", "make, 0, tick")
                .replace("static void process", "void process")
        )
        .contains("no `process`")
    );
    assert!(told("nameless.c", &with("about nothing\n")).contains("no line `name"));
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text.so");
    std::fs::write(&text, "hello").unwrap();
    assert!(
        (ANY_LIBRARY.load)(&text)
            .unwrap_err()
            .contains("cannot be loaded")
    );
}

/// Returns a function whose initialiser creates a file.
fn with_trace(trace: &Path) -> String {
    let text = with("name traced\n");
    format!(
        "{text}\n#include <stdio.h>\n__attribute__((constructor)) static void begin(void)\n{{ fclose(fopen({trace:?}, \"w\")); }}\n"
    )
}

/// As root, the test also gives the folder to another user.
#[test]
fn no_code_of_a_file_that_others_could_replace_runs_in_the_switch() {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    let base = trusted_folder(env!("CARGO_TARGET_TMPDIR"));
    let trace = base.path().join("trace");
    let source = base.path().join("traced.c");
    std::fs::write(&source, with_trace(&trace)).unwrap();
    let folder = base.path().join("open");
    std::fs::create_dir(&folder).unwrap();
    let object = compile_function(&folder, &source);
    let mode = |mode| std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o777);
    let error = (LIBRARY.load)(&object).unwrap_err();
    assert!(
        error.contains("/open has mode 0777") && error.contains("use class isolated"),
        "{error}"
    );
    mode(0o755);
    if rustix::process::geteuid().is_root() {
        chown(&folder, Some(65_534), None).unwrap();
        let error = (LIBRARY.load)(&object).unwrap_err();
        assert!(error.contains("/open belongs to user 65534"), "{error}");
        chown(&folder, Some(0), None).unwrap();
    }
    assert!(!trace.exists(), "its initialiser has run");
    assert_eq!((LIBRARY.load)(&object).unwrap().name, "traced");
    assert!(trace.exists());
}

/// The dynamic linker identifies objects by name, and `/proc/self/fd/N` could name two files if descriptors were reused.
#[test]
fn a_library_that_was_replaced_is_loaded_again_and_two_are_never_taken_for_one() {
    let base = trusted_folder(env!("CARGO_TARGET_TMPDIR"));
    for name in ["one", "two", "three"] {
        let source = base.path().join("same.c");
        std::fs::write(&source, with(&format!("name {name}\n"))).unwrap();
        let _replaced = std::fs::remove_file(base.path().join("same.so"));
        let object = compile_function(base.path(), &source);
        assert_eq!((LIBRARY.load)(&object).unwrap().name, name);
        assert_eq!((LIBRARY.load)(&object).unwrap().name, name, "from the cache");
    }
}
