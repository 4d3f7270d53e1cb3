#!/usr/bin/env bash
# Runs a test program of Rust so that it prints how long each test took. The option is not stable, so the variable
# allows it to this program; it does not change how anything is compiled.
exec env RUSTC_BOOTSTRAP=1 "$@" -Z unstable-options --report-time
