#!/usr/bin/env bash
# Runs a Rust test program so that it prints the duration of each test. The option is unstable; the variable allows it for
# this program, and does not change how anything is compiled. A program that a test starts by `cargo run` is no test
# program, as it is not in `deps`, and gets only its own arguments.
case $1 in
*/deps/*) exec env RUSTC_BOOTSTRAP=1 "$@" -Z unstable-options --report-time ;;
*) exec "$@" ;;
esac
