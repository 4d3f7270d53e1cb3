#!/usr/bin/env bash
# Builds the web page of the exchange into portal/dist, if a source is newer than it. Without Node 20.19 the script says so, and
# millrace-ix is built without the page.
set -euo pipefail
cd "$(dirname "$0")/../portal"

if ! command -v npm >/dev/null ||
    ! node -e 'const [major, minor] = process.versions.node.split(".").map(Number); process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1)'; then
    echo 'portal: Node 20.19 and npm are not installed; millrace-ix will serve the API only (scripts/setup.sh node installs them)'
    exit 0
fi
if [ -e dist/index.html ] && [ -z "$(find . -path ./node_modules -prune -o -path ./dist -prune -o -type f -newer dist/index.html -print -quit)" ]; then
    exit 0
fi
[ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --no-audit --no-fund
npm run build
# Cargo embeds the page again.
touch ../crates/exchange/ix-api/build.rs
