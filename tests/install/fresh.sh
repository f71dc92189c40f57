#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The README's two commands on a machine that has nothing: a minimal Debian in a folder, with git and make.
#
# usage: tests/install/fresh.sh bookworm|trixie
#
# Needs root and debootstrap. Tests what is committed, not the work tree. Packages come from where this machine takes
# its own: apt's sources and settings, pip's configuration and the proxy variables are carried over as they are.
# Whole logs are left in build/fresh-<release>/.
set -euo pipefail

release=${1-}
if [[ ! $release =~ ^(bookworm|trixie)$ ]]; then
  echo "usage: tests/install/fresh.sh bookworm|trixie" >&2
  exit 2
fi
repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
if [[ $(id -u) != 0 ]] || ! command -v debootstrap >/dev/null; then
  echo "fresh: needs root and debootstrap (apt-get install debootstrap)" >&2
  exit 1
fi

# All mounts are made in a namespace of their own, so that they end with it and the folder can be removed from outside.
if [[ -z ${FLAGSTONE_FRESH_ROOT-} ]]; then
  FLAGSTONE_FRESH_ROOT=$(mktemp -d "${TMPDIR:-/var/tmp}/flagstone-fresh.XXXXXX")
  export FLAGSTONE_FRESH_ROOT
  trap 'rm -rf --one-file-system "$FLAGSTONE_FRESH_ROOT"' EXIT
  unshare --mount --propagation private "$(realpath "${BASH_SOURCE[0]}")" "$release"
  exit
fi

root=$FLAGSTONE_FRESH_ROOT
logs=$repository/build/fresh-$release
mkdir -p "$logs"
chmod 755 "$root"

# --- The machine ------------------------------------------------------------------------------------------------------
host_release=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
mapfile -t sources < <(grep -lw -- "$host_release" /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null)
# The first address of either style of file that is not the security archive.
mirror=$(cat "${sources[@]}" | sed -nE 's/^URIs: *([^ ]+).*/\1/p; s/^deb +(\[[^]]*\] +)?([^ ]+) .*/\2/p' |
  grep -v security | head -n 1)
if [[ -z $mirror ]]; then
  echo "fresh: apt's sources name no Debian mirror" >&2
  exit 1
fi

echo "fresh: $release from this machine's mirror, commit $(git -C "$repository" rev-parse --short HEAD)"
debootstrap --variant=minbase --include=ca-certificates,git,make "$release" "$root" "$mirror" \
  >"$logs/debootstrap.log" 2>&1 || { tail -n 5 "$logs/debootstrap.log" >&2; exit 1; }

rm -f "$root/etc/apt/sources.list"
for file in "${sources[@]}"; do
  sed "s/\b$host_release\b/$release/g" "$file" >"$root$file"
done
# Of apt's settings those that say how to fetch; hooks and the like belong to programs that only this machine has.
apt-config dump | grep -E '^Acquire::(http|https|Check-[A-Za-z-]+|Retries|ForceIPv[46])\b' \
  >"$root/etc/apt/apt.conf.d/00host" || true
carry() {
  local path
  for path in "$@"; do
    [[ -e $path ]] || continue
    mkdir -p "$root$(dirname "$path")"
    rm -rf "${root:?}$path"
    cp -rL "$path" "$root$path"
  done
}
carry /etc/apt/auth.conf /etc/apt/auth.conf.d /etc/apt/keyrings /etc/apt/trusted.gpg.d \
  /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt \
  /etc/pip.conf /etc/xdg/pip "$HOME/.config/pip" "$HOME/.pip"
if [[ $HOME != /root ]]; then
  for folder in .config/pip .pip; do
    if [[ -e $HOME/$folder ]]; then mkdir -p "$root/root/.config"; cp -rL "$HOME/$folder" "$root/root/$folder"; fi
  done
fi

mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
# Where pip takes packages from folders of this machine, the other one sees them at the same place.
for folder in $(cat /dev/null "$root/etc/pip.conf" "$root"/etc/xdg/pip/* "$root"/root/.config/pip/* "$root"/root/.pip/* \
                  <(echo "${PIP_FIND_LINKS-} ${PIP_INDEX_URL-} ${PIP_EXTRA_INDEX_URL-}") 2>/dev/null |
                grep -oE '(^|[ =]|file://)/[^ ]+' | sed -E 's/^[ =]*(file:\/\/)?//' | cut -d/ -f1-3 | sort -u); do
  if [[ -d $folder && $folder != /etc/* ]]; then
    mkdir -p "$root$folder"
    mount --bind -o ro "$folder" "$root$folder"
  fi
done
mkdir -p "$root/mnt/source" "$root/srv"
mount --bind -o ro "$repository" "$root/mnt/source"

# --- What a newcomer does ---------------------------------------------------------------------------------------------
variables=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb)
while IFS='=' read -r name value; do
  case $name in
    *_proxy | *_PROXY | PIP_* | FLAGSTONE_REQUIRE | FLAGSTONE_WITH_*) variables+=("$name=$value") ;;
    # Certificates by the path of a file, if the other machine has it.
    *_CERT | *_CERT_FILE | *_CA_BUNDLE) if [[ -f $root$value ]]; then variables+=("$name=$value"); fi ;;
  esac
done < <(env)

there() { env -i "${variables[@]}" chroot "$root" /bin/sh -c "$1"; }

# Runs a command there and shows how it ended.
step() {
  local title=$1 command=$2 log=$logs/$3 began=$SECONDS status=0
  there "$command" >"$log" 2>&1 </dev/null || status=$?
  echo "fresh: $title: exit $status after $((SECONDS - began)) s"
  tail -n "${4:-6}" "$log" | sed 's/^/  /'
  return $status
}

step "git clone" "git -c safe.directory='*' clone -q --no-local /mnt/source /srv/flagstone" clone.log
failed=0
step "make demo" "cd /srv/flagstone && make demo" demo.log || failed=1
step "make test" "cd /srv/flagstone && make test" test.log 25 || failed=1
exit $failed
