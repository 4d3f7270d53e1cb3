# Functions of the recipes: a lab, a namespace for the VRF, FRR in namespaces. `start_recipe NAME` comes first.
MILLRACE=${MILLRACE:-millrace}
FRR=/usr/lib/frr

# Creates a namespace for the VRF and the lab of this name, and sets the variable config to a file with the switch's
# configuration. All of it is removed when the recipe ends. The namespace comes first: a daemon sees those that were there
# when it started.
start_recipe() {
    recipe=$1
    export MILLRACE_LAB=$recipe
    work=$(mktemp -d)
    chmod 755 "$work"
    config=$work/config.toml
    trap end_recipe EXIT
    ip netns add "$recipe"
    ip -n "$recipe" link set lo up
    "$MILLRACE" lab up "examples/lab/$recipe.toml"
    run br0 "$MILLRACE" show config >"$config"
}

end_recipe() {
    local pid
    for pid in "$work"/*/*.pid; do [[ ! -e $pid ]] || kill "$(<"$pid")" 2>/dev/null || true; done
    "$MILLRACE" lab down "$recipe" >/dev/null || true
    ip netns del "$recipe" 2>/dev/null || true
    rm -rf "$work"
}

# Runs a command at a host or at the switch.
run() { "$MILLRACE" lab run "$@"; }

# within SECONDS COMMAND…: repeats a command until it succeeds.
within() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || { echo "not within its time: $*" >&2; return 1; }
        sleep 0.1
    done
}

# frr NAMESPACE DAEMON [OPTION…]: starts a daemon of FRR in a namespace, with the configuration of standard input.
frr() {
    local namespace=$1 daemon=$2 folder=$work/$1
    shift 2
    mkdir -p "$folder"
    chmod 777 "$folder"
    cat >"$folder/$daemon.conf"
    ip netns exec "$namespace" "$FRR/$daemon" -d -f "$folder/$daemon.conf" -i "$folder/$daemon.pid" -z "$folder/zserv" \
        --vty_socket "$folder" -P 0 "$@"
}

# vtysh NAMESPACE COMMAND: asks the daemons of a namespace.
ask() { ip netns exec "$1" vtysh --vty_socket "$work/$1" -c "$2"; }
