#!/usr/bin/env bash
# Starts a Rust test program in namespaces of its own and returns at once, so that several run side by side although cargo
# starts one after the other: most tests wait. The program waits for a token, prints its output in one piece at its end, and
# leaves the file `failed` if a test failed.
#
# MILLRACE_TEST_TOKENS names a pipe with a byte for each program that may run. Option and RUSTC_BOOTSTRAP make a program print
# the duration of each test; the option is unstable, and the variable changes nothing that is compiled. A program that a test
# starts by `cargo run` is no test program, as it is not in `deps`.
set -euo pipefail
case $1 in
*/deps/*) ;;
*) exec "$@" ;;
esac
here=$(dirname "$(realpath "$0")")
pipe=$MILLRACE_TEST_TOKENS
folder=$(dirname "$pipe")
program=$1
log=$folder/$(basename "$program").log
read -rn1 <>"$pipe"
(
    code=0
    # As cargo prints it, for scripts/test-times.py.
    echo "     Running ${CARGO_MANIFEST_DIR##*/} ($program)" >"$log"
    env RUSTC_BOOTSTRAP=1 "$here/apart.sh" "$@" -Z unstable-options --report-time </dev/null >>"$log" 2>&1 || code=$?
    if [ $code -ne 0 ]; then
        echo "error: $program ended with status $code" >>"$log"
        touch "$folder/failed"
    fi
    flock "$folder" cat "$log"
    printf . >"$pipe"
) &
echo $! >>"$folder/started"
