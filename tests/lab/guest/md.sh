#!/bin/sh
# One md array in the lab, on loop devices of files in memory.
#
#   md.sh make  FOLDER "MDADM-OPTIONS" BYTES...   makes, fills and stops the array; FOLDER gets its members as m0, m1, ..., what
#                                                 the array itself held, and the sums of its files
#   md.sh check FOLDER COUNT CHECK                assembles the members in FOLDER again and compares; CHECK is yes where copies
#                                                 or parity can be compared
set -eu
verb=$1 folder=$2 options=$3
PATH=$PATH:/usr/sbin:/sbin
export MDADM_NO_UDEV=1
modprobe -a loop linear raid0 raid1 raid10 raid456
work=/run/md-lab mount=/run/md-mount node=/dev/md10
rm -rf "$work"
mkdir -p "$work" "$mount"

. "$(dirname "$0")/files.sh"
attach() { nodes="$nodes $(losetup --find --show "$1")"; }
release() {
  for loop in $nodes; do losetup --detach "$loop"; done
}
idle() {
  mdadm --wait "$node" 2>&1 || true
}

nodes=""
case $verb in
make)
  shift 3
  number=0
  for size in "$@"; do
    truncate --size "$size" "$work/m$number"
    attach "$work/m$number"
    number=$((number + 1))
  done
  # shellcheck disable=SC2086 # options and nodes are lists
  mdadm --create "$node" --run --quiet --raid-devices=$number $options $nodes
  idle
  fill "$node" "$mount" 40 "$folder/sums"
  cp "$node" "$folder/array"
  mdadm --stop --quiet "$node"
  release
  cp "$work"/m* "$folder/"
  ;;
check)
  count=$3
  cp "$folder"/m* "$work/"
  for number in $(seq 0 $((count - 1))); do attach "$work/m$number"; done
  # shellcheck disable=SC2086
  mdadm --assemble "$node" --run --quiet $nodes
  if [ "$4" = yes ]; then
    idle
    echo check >/sys/block/md10/md/sync_action
    idle
    echo "mismatches: $(cat /sys/block/md10/md/mismatch_cnt)"
  fi
  compare "$node" "$mount" "$folder/sums"
  mdadm --stop --quiet "$node"
  release
  ;;
esac
