#!/bin/sh
# netns.sh [-r RATE] [-l LATENCY] [-n RANKS] COMMAND... - runs a job on two "hosts" of this machine.
#
# Each host is a network namespace; a veth pair joins them, limited to RATE (1gbit) each way by a
# token bucket and delayed by LATENCY (0: not at all), with RANKS (1) ranks of COMMAND on each.
# So a slow network costs what it costs, on one machine:
#
#     sudo scripts/netns.sh -r 1gbit build/gcc/bin/weft-run plan.json
#
# The status is mpirun's. Namespaces and everything in them are removed at the end, also after an
# interrupt; what a killed run left behind, the next one removes. Without root, or where the
# kernel or the tools do not allow it, it says so on a line that begins with "# SKIP" and exits 0.
set -u
rate=1gbit latency=0 ranks=1
usage() {
    echo "usage: netns.sh [-r RATE] [-l LATENCY] [-n RANKS] COMMAND..." >&2
    exit 2
}
while getopts r:l:n: option; do
    case $option in
    r) rate=$OPTARG ;;
    l) latency=$OPTARG ;;
    n) ranks=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || usage

skip() {
    echo "# SKIP netns.sh: $1"
    exit 0
}
[ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
for tool in ip tc mpirun; do
    command -v $tool >/dev/null || skip "$tool is not installed"
done

# Names say whose they are: weft-PID-a, weft-PID-b.
drop() {
    for pid in $(ip netns pids "$1" 2>/dev/null); do
        kill -9 "$pid" 2>/dev/null
    done
    ip netns del "$1" 2>/dev/null
}
for old in $(ip netns list | sed -n 's/^\(weft-[0-9]*-[ab]\).*/\1/p'); do
    owner=${old#weft-}
    [ -d "/proc/${owner%-*}" ] || drop "$old"
done

a=weft-$$-a b=weft-$$-b
work=$(mktemp -d) || exit 4
finish() {
    trap '' INT TERM HUP
    drop $a
    drop $b
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# host NAMESPACE ADDRESS - its end of the wire exists already
host() {
    ip -n "$1" link set lo up &&
        ip -n "$1" addr add "$2/24" dev weft0 &&
        ip -n "$1" link set weft0 up &&
        ip netns exec "$1" tc qdisc add dev weft0 root handle 1: tbf rate "$rate" \
            burst 128kb latency 20ms || return
    [ "$latency" = 0 ] || ip netns exec "$1" tc qdisc add dev weft0 parent 1:1 netem \
        delay "$latency" limit 100000
}
{
    ip netns add $a && ip netns add $b &&
        ip link add weft0 netns $a type veth peer name weft0 netns $b
} 2>"$work/why" || skip "no network namespaces here ($(head -n 1 "$work/why"))"
if ! host $a 10.77.0.1 || ! host $b 10.77.0.2; then
    skip "cannot limit the link between the namespaces"
fi

# What mpirun starts on a host goes into its namespace, in a session and a folder of its own.
mkdir "$work/a" "$work/b"
cat >"$work/rsh" <<END
#!/bin/sh
shift
exec ip netns exec $b setsid env TMPDIR=$work/b sh -c "\$*"
END
chmod +x "$work/rsh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# In the background: a signal to this shell is answered at once. Each "host" would bind its first rank to
# the first core, which is the same one.
ip netns exec $a env TMPDIR="$work/a" mpirun --oversubscribe --bind-to none --mca plm_rsh_agent "$work/rsh" \
    --mca odls_base_sigkill_timeout 0 --mca btl tcp,vader,self --mca oob_tcp_if_include weft0 \
    --mca btl_tcp_if_include weft0 -H "10.77.0.1:$ranks,10.77.0.2:$ranks" --map-by slot \
    "$@" </dev/null &
wait $!
