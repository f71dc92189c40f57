#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/as_ordinary_user.sh DIRECTORY COMMAND...
#
# For root: runs a command as a user without any right (uid 65534), under the 8 MiB limit of locked memory that users
# have, so that the library's fallbacks are its normal path and file modes count. DIRECTORY is this repository: where
# the user cannot reach it, because it lies under somebody's private folder, the command sees it in a mount namespace
# in which that folder is replaced by one with the repository alone. Exits 125 when that cannot be done.
set -euo pipefail

uid=65534
directory=$(realpath "${1:?usage: scripts/as_ordinary_user.sh DIRECTORY COMMAND...}")
shift

as_user() {
  prlimit --memlock=$((8 << 20)) setpriv --reuid=$uid --regid=$uid --clear-groups --inh-caps=-all \
    env -u XDG_RUNTIME_DIR HOME="${TMPDIR:-/tmp}" USER=nobody LOGNAME=nobody "$@"
}

# Prints the first folder on the way to $directory, itself included, that the user cannot enter.
first_closed_folder() {
  local folder="" part
  local -a parts
  IFS=/ read -ra parts <<<"${directory#/}"
  for part in "${parts[@]}"; do
    folder+=/$part
    as_user test -x "$folder" || { echo "$folder"; return; }
  done
}

closed=$(first_closed_folder)
if [[ -z $closed ]]; then
  as_user "$@"
  exit
fi

if [[ -z ${FLAGSTONE_IN_NAMESPACE-} ]]; then
  if ! unshare --mount true 2>/dev/null; then
    echo "as_ordinary_user: uid $uid cannot enter $closed, and no mount namespace may be made" >&2
    exit 125
  fi
  FLAGSTONE_IN_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$directory" "$@"
fi

hold=$(mktemp -d /tmp/flagstone.XXXXXX)
trap 'umount "$hold" && rmdir "$hold"' EXIT
mount --bind "$directory" "$hold"
mount -t tmpfs -o mode=755 tmpfs "$closed"
mkdir -p "$directory"
# One by one, as the repository's own folder may be the closed one.
shopt -s dotglob nullglob
for entry in "$hold"/*; do
  name=$directory/${entry##*/}
  if [[ -L $entry ]]; then
    cp -P "$entry" "$name"
  elif [[ -d $entry ]]; then
    mkdir "$name"
    mount --bind "$entry" "$name"
  else
    touch "$name"
    mount --bind "$entry" "$name"
  fi
done
cd "$directory"
as_user "$@"
