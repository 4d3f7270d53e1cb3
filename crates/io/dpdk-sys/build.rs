//! Finds DPDK, compiles the C shim and generates the bindings.
//!
//! Only shared DPDK libraries are linked, and only those that this crate calls. The poll-mode drivers are
//! plugins: EAL loads them at run time from the directory that the distribution compiled into EAL. Link flags
//! reach only crates that depend on this crate.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

/// The oldest release the shim is written for.
const OLDEST: &str = "22.11";

/// The DPDK libraries that hold the functions called from Rust or from the shim.
///
/// Libraries that the installed release lacks are omitted: `rte_log` became a separate library in 23.11.
const LIBRARIES: [&str; 6] = [
    "rte_ethdev",
    "rte_mbuf",
    "rte_mempool",
    "rte_ring",
    "rte_eal",
    "rte_log",
];

/// Functions that DPDK exports as symbols, so that they need no shim. Their signatures are equal in 22.11, 23.11 and
/// 24.11.
const FUNCTIONS: [&str; 42] = [
    "rte_dev_probe",
    "rte_dev_remove",
    "rte_eal_get_runtime_dir",
    "rte_eal_has_hugepages",
    "rte_eal_hotplug_remove",
    "rte_eal_init",
    "rte_eth_dev_adjust_nb_rx_tx_desc",
    "rte_eth_dev_close",
    "rte_eth_dev_get_mtu",
    "rte_eth_dev_get_name_by_port",
    "rte_eth_dev_get_port_by_name",
    "rte_eth_dev_set_link_down",
    "rte_eth_dev_set_link_up",
    "rte_eth_dev_set_mtu",
    "rte_eth_dev_socket_id",
    "rte_eth_dev_start",
    "rte_eth_dev_stop",
    "rte_eth_find_next",
    "rte_eth_promiscuous_disable",
    "rte_eth_promiscuous_enable",
    "rte_eth_promiscuous_get",
    "rte_eth_rx_queue_setup",
    "rte_eth_stats_reset",
    "rte_eth_tx_queue_setup",
    "rte_get_tsc_hz",
    "rte_log_cur_msg_loglevel",
    "rte_log_cur_msg_logtype",
    "rte_log_set_global_level",
    "rte_log_set_level_pattern",
    "rte_mempool_avail_count",
    "rte_mempool_in_use_count",
    "rte_pktmbuf_copy",
    "rte_pktmbuf_free_bulk",
    "rte_ring_create",
    "rte_ring_free",
    "rte_strerror",
    "rte_thread_register",
    "rte_thread_unregister",
    "rte_version",
    "rte_version_minor",
    "rte_version_month",
    "rte_version_year",
];

fn main() -> ExitCode {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shim/shim.h");
    println!("cargo:rerun-if-changed=shim/shim.c");
    println!("cargo:rerun-if-changed=shim/sigbus.c");
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // cargo shows the standard error of a failed build script as it is.
            eprintln!("\n{message}\n");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let dpdk = pkg_config::Config::new()
        .atleast_version(OLDEST)
        .cargo_metadata(false)
        .env_metadata(true)
        .probe("libdpdk")
        .map_err(|error| {
            format!(
                "millrace-dpdk-sys needs DPDK {OLDEST} or later, with its headers, and pkg-config does not find it.\n\
                 To fix it: apt-get install libdpdk-dev pkg-config (or: make setup). For a DPDK of your own, set \
                 PKG_CONFIG_PATH to the folder that holds libdpdk.pc.\n\
                 pkg-config said: {error}"
            )
        })?;

    // `pkg-config --cflags` returns flags that the `pkg_config` crate leaves out: `-include rte_config.h` and
    // `-march`.
    let flags = cflags()?;
    compile_shim(&flags);
    generate_bindings(&flags)?;

    for path in &dpdk.link_paths {
        println!("cargo:rustc-link-search=native={}", path.display());
    }
    for library in LIBRARIES
        .iter()
        .filter(|library| dpdk.libs.iter().any(|found| found == **library))
    {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
    println!("cargo:version={}", dpdk.version);
    Ok(())
}

fn cflags() -> Result<Vec<String>, String> {
    let pkg_config = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned());
    let output = std::process::Command::new(&pkg_config)
        .args(["--cflags", "libdpdk"])
        .output()
        .map_err(|error| {
            format!("cannot run {pkg_config}: {error}. To fix it: apt-get install pkg-config")
        })?;
    let flags = String::from_utf8_lossy(&output.stdout);
    Ok(flags.split_whitespace().map(str::to_owned).collect())
}

fn compile_shim(flags: &[String]) {
    let mut shim = cc::Build::new();
    shim.file("shim/shim.c")
        .file("shim/sigbus.c")
        .include("shim")
        .std("gnu11")
        .opt_level(3)
        .warnings(true)
        .extra_warnings(true);
    for flag in flags {
        shim.flag(flag);
    }
    // Every function of the shim is called from Rust and never inlined. These flags save the avoidable costs
    // of such a call: frame pointers and PLT stubs.
    shim.flag("-fno-plt")
        .flag("-fomit-frame-pointer")
        .flag("-Wno-unused-parameter");
    shim.compile("millrace_dpdk_shim");
}

fn generate_bindings(flags: &[String]) -> Result<(), String> {
    let mut builder = bindgen::Builder::default()
        .header("shim/shim.h")
        .clang_args(flags)
        .clang_arg("-Ishim")
        .use_core()
        .layout_tests(false)
        .generate_comments(false)
        .merge_extern_blocks(true)
        .sort_semantically(true)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .allowlist_function("shim_.*")
        .allowlist_type("shim_.*")
        .allowlist_var("SHIM_.*")
        .derive_default(true)
        // Fields of these structures move between releases. Rust accesses the fields of an mbuf through the
        // offsets in shim.h, and no fields of other structures.
        .opaque_type("rte_.*");
    for function in FUNCTIONS {
        builder = builder.allowlist_function(function);
    }
    let bindings = builder.generate().map_err(|error| {
        format!("bindgen cannot read DPDK's headers: {error}\nTo fix it: apt-get install clang libclang-dev")
    })?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets no OUT_DIR")?).join("bindings.rs");
    bindings
        .write_to_file(&out)
        .map_err(|error| format!("cannot write {}: {error}", out.display()))
}
