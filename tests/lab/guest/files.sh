# Sourced by the scripts of the lab that make arrays and volumes: files on a filesystem, and their sums.

# fill NODE MOUNT COUNT SUMS: a filesystem with files of which every third was removed again; SUMS lists the others.
fill() {
  mke2fs -q -F -t ext4 -b 1024 "$1"
  mount "$1" "$2"
  for name in $(seq 1 "$3"); do
    head -c $((name * 6007)) /dev/urandom >"$2/file$name"
  done
  sync
  for name in $(seq 1 3 "$3"); do rm "$2/file$name"; done
  (cd "$2" && find . -type f -print0 | sort -z | xargs -0 sha256sum) >"$4"
  umount "$2"
}

# compare NODE MOUNT SUMS: an error unless the filesystem is clean and holds what SUMS lists; prints how many files it has.
compare() {
  e2fsck -f -n "$1"
  mount -o ro "$1" "$2"
  (cd "$2" && sha256sum --quiet --check "$3" && find . -type f | wc -l)
  umount "$2"
}
