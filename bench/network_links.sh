# shellcheck shell=bash
# Sourced by the scripts that train over a slow network on one Linux machine: every rank in a network namespace of its
# own, joined by a bridge, its link limited in both directions by token buckets. Needs root and iproute2.
#
#   skip <why>               ends the script with 77
#   need_network_tools       skips where namespaces cannot be had; installs iproute2 unless $install is no
#   make_network <ranks>     namespaces $tag-1 ... and addresses $subnet.1 ..., in $hosts by comma; $scratch is a
#                            folder. All of it goes when the script ends
#   limit_links <rate>       100mbit, 1gbit, ...

script=$(basename "$0")

skip() {
  echo "$script: skipped: $1"
  exit 77
}

need_network_tools() {
  [ "$(uname -s)" = Linux ] || skip "network namespaces are Linux's, this is $(uname -s)"
  [ "$(id -u)" = 0 ] || skip "making network namespaces needs root"
  if ! command -v ip >/dev/null || ! command -v tc >/dev/null; then
    if [ "$install" = yes ]; then
      # shellcheck source=/dev/null
      source cmake/setup.sh
      want iproute2 command -v tc
    fi
    command -v tc >/dev/null || skip "there is no ip and tc (iproute2)"
  fi
}

clean_up() {
  local r
  for ((r = 1; r <= links; ++r)); do
    ip netns pids "$tag-$r" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
    ip netns del "$tag-$r" 2>/dev/null || true
    ip link del "$tag-v$r" 2>/dev/null || true
  done
  ip link del "$tag-br" 2>/dev/null || true
  rm -rf "$scratch"
}

make_network() {
  local r
  links=$1
  tag=gs$$ # names of this run's own; interface names have at most 15 characters
  subnet=10.$((RANDOM % 100 + 100)).$((RANDOM % 250))
  scratch=$(mktemp -d)
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP

  ip netns add "$tag-1" 2>"$scratch/why" || skip "cannot make a network namespace: $(cat "$scratch/why")"
  ip link add "$tag-br" type bridge 2>"$scratch/why" || skip "cannot make a bridge: $(cat "$scratch/why")"
  ip addr add "$subnet.254/24" dev "$tag-br"
  ip link set "$tag-br" up
  hosts=
  for ((r = 1; r <= links; ++r)); do
    [ "$r" = 1 ] || ip netns add "$tag-$r"
    ip link add "$tag-v$r" type veth peer name eth0 netns "$tag-$r"
    ip link set "$tag-v$r" master "$tag-br" up
    ip -n "$tag-$r" link set lo up
    ip -n "$tag-$r" addr add "$subnet.$r/24" dev eth0
    ip -n "$tag-$r" link set eth0 up
    hosts+=${hosts:+,}$subnet.$r
  done
}

# A bucket holds a quarter of a millisecond, so that few bytes travel for free; TCP's large segments are kept to half of
# that, as a longer one would be cut into packets, at a cost that two cores feel at 1 Gbit/s.
limit_links() {
  local rate=$1 mbit segment r
  case $rate in
    *[0-9]mbit) mbit=${rate%mbit} ;;
    *[0-9]gbit) mbit=$((${rate%gbit} * 1000)) ;;
    *) echo "$script: --rates '$rate': write 100mbit or 1gbit" >&2 && exit 2 ;;
  esac
  segment=$((mbit * 16))
  [ $segment -ge 3000 ] || segment=3000
  [ $segment -le 65536 ] || segment=65536
  for ((r = 1; r <= links; ++r)); do
    ip -n "$tag-$r" link set eth0 gso_max_size "$segment" 2>/dev/null || true
    ip netns exec "$tag-$r" tc qdisc replace dev eth0 root tbf rate "$rate" burst $((2 * segment)) latency 100ms
    tc qdisc replace dev "$tag-v$r" root tbf rate "$rate" burst $((2 * segment)) latency 100ms
  done 2>"$scratch/why" || skip "cannot limit a link with tc tbf: $(cat "$scratch/why")"
}
