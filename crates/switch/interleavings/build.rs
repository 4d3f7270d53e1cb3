//! Turns on `cfg(loom)` for this package alone, so that its dependencies are those of every other build.

fn main() {
    println!("cargo:rustc-cfg=loom");
    println!("cargo:rerun-if-changed=build.rs");
}
