#!/usr/bin/env bash
# Makes ../src/generated/*.rs from the .proto files with protox, prost-build and tonic-prost-build, in a folder of its own: these compilers
# are no dependencies of Millrace.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/src" "$folder/proto/github.com/openconfig/gnmi/proto/gnmi_ext"
cp "$here/gnmi.proto" "$folder/proto/"
# gnmi.proto imports its extensions by their path in the Go module.
cp "$here/gnmi_ext.proto" "$folder/proto/github.com/openconfig/gnmi/proto/gnmi_ext/"
cat >"$folder/Cargo.toml" <<'TOML'
[package]
name = "generate"
version = "0.0.0"
edition = "2024"
[dependencies]
protox = "0.9"
prost-build = "0.14"
tonic-prost-build = "0.14"
[workspace]
TOML
cat >"$folder/src/main.rs" <<'RUST'
fn main() {
    let out = std::env::args().nth(1).expect("expected a folder");
    let descriptors = protox::compile(["gnmi.proto"], ["proto"]).expect("the .proto files are valid");
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .btree_map(".")
        .out_dir(out)
        .compile_fds(descriptors)
        .expect("the code can be written");
}
RUST
(cd "$folder" && cargo run --quiet -- "$here/../src/generated")
rm -f "$here/../src/generated/google.protobuf.rs"
