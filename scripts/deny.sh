#!/usr/bin/env bash
# Checks the dependencies: licences, sources and versions (deny.toml), and known vulnerabilities.
#
# The vulnerabilities are those of the RustSec database, a git repository at GitHub. No package registry serves a copy of it, so
# that this part needs GitHub, or a copy of an earlier run. The last line says which: fresh, old, or not checked. Without GitHub
# and without a copy, the script succeeds, unless MILLRACE_ADVISORIES=required is set, as in a CI that reaches GitHub.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
cargo deny check bans licenses sources

database=https://github.com/RustSec/advisory-db
copies=${CARGO_HOME:-$HOME/.cargo}/advisory-dbs
if timeout 120 cargo deny fetch db 2>/dev/null; then
    cargo deny check advisories
    echo "advisories: checked against $database of today"
    exit
fi
copy=$(find "$copies" -mindepth 1 -maxdepth 1 -type d -name 'advisory-db-*' -exec test -d '{}/.git' ';' -print -quit 2>/dev/null || true)
if [ -n "$copy" ]; then
    day=$(git -C "$copy" log -1 --format=%cs)
    # cargo-deny refuses a copy that is older than 90 days.
    cargo deny --offline check advisories
    echo "advisories: OLD: checked against a copy of $day, because $database cannot be reached" >&2
else
    echo "advisories: NOT CHECKED: $database cannot be reached, and $copies has no copy of it" >&2
fi
[ "${MILLRACE_ADVISORIES:-}" != required ]
