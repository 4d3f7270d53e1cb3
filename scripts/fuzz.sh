#!/usr/bin/env bash
# Runs every fuzzer for SECONDS each, on the stable compiler (without a sanitizer: the code under test is safe Rust, and the
# fuzzers look for panics). New inputs are stored in fuzz/corpus, crashes in fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
export RUSTC_BOOTSTRAP=1
# Link-time optimisation of each fuzzer would take longer than the fuzzer runs.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
for target in fuzz/fuzz_targets/*.rs; do
    name=$(basename "$target" .rs)
    echo "fuzz: $name for $seconds s"
    cargo fuzz run --sanitizer none --features libfuzzer "$name" -- -max_total_time="$seconds" -max_len=4096 -verbosity=0
done
