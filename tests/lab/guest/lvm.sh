#!/bin/sh
# One volume group in the lab, on loop devices of files in memory.
#
#   lvm.sh make  FOLDER BYTES...   makes, fills and deactivates the group; FOLDER gets its physical volumes as p0, p1, ..., what
#                                  each logical volume held, the sums of its files, and LVM's report as layout.json
#   lvm.sh check FOLDER COUNT      activates the physical volumes in FOLDER again and compares
set -eu
verb=$1 folder=$2
shift 2
PATH=$PATH:/usr/sbin:/sbin
export LVM_SUPPRESS_FD_WARNINGS=1
modprobe -a loop dm-mod dm-raid dm-mirror dm-snapshot
work=/run/lvm-lab mount=/run/lvm-mount
rm -rf "$work"
mkdir -p "$work" "$mount"

config='devices { use_devicesfile=0 filter=["a|/dev/loop|","r|.*|"] } activation { udev_sync=0 udev_rules=0 monitoring=0 }
  backup { backup=0 archive=0 } global { locking_dir="/run/lvm-lock" }'
. "$(dirname "$0")/files.sh"
lvm_() { lvm "$@" --config "$config"; }
attach() { nodes="$nodes $(losetup --find --show "$1")"; }
release() {
  lvm_ vgchange -an lab
  for loop in $nodes; do losetup --detach "$loop"; done
}

nodes=""
volumes="lin str mir"
case $verb in
make)
  number=0
  for size in "$@"; do
    truncate --size "$size" "$work/p$number"
    # What lies in no volume is somebody's, as far as anybody knows.
    tr '\0' '\245' <"$work/p$number" >"$work/filled"
    mv "$work/filled" "$work/p$number"
    dd if=/dev/zero of="$work/p$number" bs=4096 count=1 conv=notrunc 2>/dev/null
    attach "$work/p$number"
    number=$((number + 1))
  done
  # shellcheck disable=SC2086 # nodes is a list
  lvm_ pvcreate -q $nodes
  # shellcheck disable=SC2086
  lvm_ vgcreate -q -s 1m lab $nodes
  lvm_ lvcreate -q -y -l 6 -n lin lab
  lvm_ lvcreate -q -y -i 2 -I 64k -l 12 -n str lab
  lvm_ lvcreate -q -y -l 5 -n gone lab
  lvm_ lvextend -q -l +7 lab/lin
  lvm_ lvcreate -q -y --type raid1 -m 1 -l 9 -n mir lab
  lvm_ lvremove -q -y lab/gone
  tries=0
  until [ "$(lvm_ lvs --noheadings -o sync_percent lab/mir | tr -d ' ')" = 100.00 ]; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || { echo "the mirror does not synchronise"; exit 1; }
    sleep 0.2
  done
  for volume in $volumes; do
    node=/dev/lab/$volume
    [ -e "$node" ] || node=/dev/mapper/lab-$volume
    fill "$node" "$mount" 30 "$folder/$volume.sums"
    cp "$node" "$folder/$volume"
  done
  lvm_ lvs -a --segments --reportformat json --units b --nosuffix \
    -o lv_name,segtype,seg_start_pe,seg_size_pe,stripe_size,devices lab >"$folder/layout.json"
  # shellcheck disable=SC2086
  echo $nodes >"$folder/nodes"
  release
  cp "$work"/p* "$folder/"
  ;;
check)
  count=$1
  cp "$folder"/p* "$work/"
  for number in $(seq 0 $((count - 1))); do attach "$work/p$number"; done
  lvm_ vgchange -ay lab
  for volume in $volumes; do
    node=/dev/lab/$volume
    [ -e "$node" ] || node=/dev/mapper/lab-$volume
    compare "$node" "$mount" "$folder/$volume.sums"
  done
  lvm_ lvchange --syncaction check lab/mir
  tries=0
  until [ "$(lvm_ lvs --noheadings -o raid_sync_action lab/mir | tr -d ' ')" = idle ]; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || { echo "the check does not end"; exit 1; }
    sleep 0.2
  done
  echo "mismatches:$(lvm_ lvs --noheadings -o raid_mismatch_count lab/mir)"
  release
  ;;
esac
