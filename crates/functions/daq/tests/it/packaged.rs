//! The module through the packaged libdaq 2, which loads it as Snort would. Skipped where the library is not installed.

use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use millrace_chain::HopState;
use millrace_daq::v2;

use crate::loader::shared_object;
use crate::verdicts::{Bed, check_verdicts};

/// Builds the loading program in `dir`. Returns `None` without the headers of libdaq 2.
fn build(dir: &Path) -> Option<PathBuf> {
    if !Path::new("/usr/include/daq_api.h").exists() {
        eprintln!("skipped: libdaq 2 is not installed (apt install libdaq-dev)");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/packaged/loader.c");
    let program = dir.join("loader");
    let mut command = Command::new("cc");
    command
        .arg("-o")
        .arg(&program)
        .arg(source)
        .args(["-ldaq", "-ldl"]);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(program)
}

#[test]
fn the_packaged_libdaq_2_loads_the_module_and_its_verdicts_have_their_effects() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build(dir.path()) else { return };
    std::fs::copy(shared_object(2), dir.path().join("daq_millrace.so")).unwrap();
    let mut bed = Bed::new(1);
    let mut command = Command::new(program);
    command.arg(dir.path()).arg(&bed.socket).arg("10");
    command.stdout(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    bed.wait_for(HopState::Up);
    check_verdicts(&mut bed, false);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{:?}: {text}", output.status);
    assert!(text.contains("verdicts=4,2,1,1,1,1\ninjected=1\n"), "{text}");
    // Our declarations have the layout of the interface.
    for (name, wanted) in [
        ("api", v2::API_VERSION as usize),
        ("DAQ_Module_t", size_of::<v2::Module>()),
        ("DAQ_PktHdr_t", size_of::<v2::PacketHeader>()),
        ("DAQ_Config_t", size_of::<v2::Config>()),
        ("DAQ_Stats_t", size_of::<v2::Stats>()),
        ("DAQ_Module_t.initialize", offset_of!(v2::Module, initialize)),
        ("DAQ_Module_t.acquire", offset_of!(v2::Module, acquire)),
        ("DAQ_Module_t.check_status", offset_of!(v2::Module, check_status)),
        ("DAQ_Module_t.get_errbuf", offset_of!(v2::Module, get_errbuf)),
        ("DAQ_Module_t.hup_prep", offset_of!(v2::Module, hup_prep)),
        ("DAQ_Module_t.dp_add_dc", offset_of!(v2::Module, dp_add_dc)),
        ("DAQ_PktHdr_t.caplen", offset_of!(v2::PacketHeader, caplen)),
        (
            "DAQ_PktHdr_t.ingress_index",
            offset_of!(v2::PacketHeader, ingress_index),
        ),
        ("DAQ_PktHdr_t.priv_ptr", offset_of!(v2::PacketHeader, priv_ptr)),
        (
            "DAQ_PktHdr_t.address_space_id",
            offset_of!(v2::PacketHeader, address_space_id),
        ),
        ("DAQ_Config_t.timeout", offset_of!(v2::Config, timeout)),
        ("DAQ_Config_t.mode", offset_of!(v2::Config, mode)),
        ("DAQ_Config_t.values", offset_of!(v2::Config, values)),
        ("DAQ_Stats_t.verdicts", offset_of!(v2::Stats, verdicts)),
    ] {
        assert!(
            text.contains(&format!("{name}={wanted}\n")),
            "{name} is not {wanted}: {text}"
        );
    }
}
