#!/usr/bin/env bash
# Runs the demo of the exchange in its own namespaces: `make demo-exchange`. The arguments are those of demo/exchange/demo.py.
set -euo pipefail
cd "$(dirname "$0")/../.."

# Node, where the system has none, and the daemons of the routers.
export PATH=$PWD/target/node/bin:$PATH:/usr/sbin:/sbin
export MILLRACE_TARGET=${MILLRACE_TARGET:-$PWD/target/release}
if ((EUID != 0)); then
    command -v sudo >/dev/null || { echo 'demo-exchange: namespaces need root, and sudo is not installed' >&2; exit 1; }
    exec sudo --preserve-env=MILLRACE_TARGET,MILLRACE_PAGE "$PWD/demo/exchange/demo.sh" "$@"
fi
# /run is empty there, and all processes end with the demo. FRR's vtysh writes its history to the home directory.
HOME=/run exec scripts/apart.sh "$PWD/target/venv/bin/python" demo/exchange/demo.py "$@"
