#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what Flagstone is built and tested with, from a machine that has git and make. Says what is missing where
# it cannot, and goes on when the part is optional. Runs again in a moment when nothing is missing.
#
#   scripts/setup.sh           install what is missing, trying again what failed before
#   scripts/setup.sh --quick   the same, but without trying again an optional part that failed (make build and others)
#
# FLAGSTONE_WITH_TORCH=OFF and FLAGSTONE_WITH_URING=OFF in the environment leave the part alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 022

# Debian's names without versions, so that one list serves 12 and 13 (one absent name fails the whole call).
required_packages=(
  g++ cmake ninja-build pkg-config git make binutils util-linux
  libflatbuffers-dev flatbuffers-compiler libxxhash-dev
  libcli11-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev
  python3 python3-venv
)
uring_package=liburing-dev
torch_requirement="torch==2.13.0"
cmake_minimum=3.25

quick=false
case "${1-}" in
  "") ;;
  --quick) quick=true ;;
  *) echo "usage: scripts/setup.sh [--quick]" >&2; exit 2 ;;
esac

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

mkdir -p build
exec 9>build/.setup.lock
# Two makes at once must not both install. Without flock (util-linux) this is a machine that has nothing yet.
if command -v flock >/dev/null; then flock 9; fi

# The stamp holds the hash of this script, then what it found: an optional part that could not be had is not tried
# again by every make, which without a network would wait for a time-out each time.
stamp=build/setup.stamp
key=$(sha256sum scripts/setup.sh | cut -d' ' -f1)
declare -A gave_up=()
if [[ -f $stamp ]] && [[ $(head -n 1 "$stamp") == "$key" ]]; then
  while IFS=$'\t' read -r part reason; do gave_up[$part]=$reason; done < <(sed -n 's/^no //p' "$stamp")
fi
tried_before() { $quick && [[ -n ${gave_up[$1]-} ]]; }

# --- Packages ---------------------------------------------------------------------------------------------------------
as_root() {
  if [[ $(id -u) == 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
    sudo "$@"
  else
    return 1
  fi
}

# Prints those of the given packages that are not installed.
missing_packages() {
  local package
  declare -A installed=()
  while read -r package; do installed[$package]=1; done < <(
    dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p')
  for package in "$@"; do
    [[ -n ${installed[$package]-} ]] || echo "$package"
  done
}

apt_updated=false
apt_install() {
  if ! $apt_updated; then
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q || return 1
    apt_updated=true
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
  mapfile -t wanted < <(missing_packages "${required_packages[@]}")
  if (( ${#wanted[@]} )); then
    say "installing ${wanted[*]}"
    apt_install "${wanted[@]}" || fail "could not install packages; as root: apt-get install ${wanted[*]}"
  fi
  if [[ ${FLAGSTONE_WITH_URING-AUTO} == OFF ]]; then
    unset 'gave_up[io_uring]'
  elif [[ -z $(missing_packages "$uring_package") ]]; then
    unset 'gave_up[io_uring]'
  elif ! tried_before io_uring; then
    say "installing $uring_package"
    if apt_install "$uring_package"; then
      unset 'gave_up[io_uring]'
    else
      gave_up[io_uring]="$uring_package could not be installed"
    fi
  fi
else
  say "this is no Debian, so packages are left to you; their names there: ${required_packages[*]} $uring_package"
fi

for tool in c++ cmake ninja flatc pkg-config python3; do
  command -v "$tool" >/dev/null || fail "there is no '$tool' on PATH"
done
found=$(cmake --version | sed -n '1s/^cmake version //p')
if [[ $(printf '%s\n' "$cmake_minimum" "$found" | sort -V | head -n 1) != "$cmake_minimum" ]]; then
  fail "cmake on PATH is $found; at least $cmake_minimum is needed"
fi

# --- LibTorch ---------------------------------------------------------------------------------------------------------
# The C++ libraries of the torch wheel. Its Python dependencies are left out, and of what a CUDA build needs only the
# two small libraries without which libtorch_cpu cannot be loaded: the others are gigabytes and only used by a GPU.
torch_folder() { compgen -G ".venv/lib/python3*/site-packages/torch" || true; }

torch_is_there() {
  local folder
  folder=$(torch_folder)
  [[ -n $folder && -f $folder/lib/libtorch_cpu.so && -f $folder/lib/libc10.so ]] || return 1
  [[ ! -f $folder/lib/libtorch_cuda.so ]] || compgen -G "$folder/../nvidia/*/lib/libcudart.so*" >/dev/null
}

# Prints the exact requirement that the installed torch states for a distribution, or its bare name.
torch_needs() {
  .venv/bin/python - "$1" <<'PYTHON'
import importlib.metadata as metadata
import re
import sys

name = sys.argv[1]
for line in metadata.requires("torch") or []:
    requirement = line.split(";")[0].strip()
    if re.split(r"[\s=<>!~\[(]", requirement)[0] == name:
        print(requirement)
        break
else:
    print(name)
PYTHON
}

install_torch() {
  local log=build/setup-torch.log runtime cupti
  if [[ ! -x .venv/bin/pip ]]; then
    rm -rf .venv
    python3 -m venv .venv >"$log" 2>&1 || return 1
  fi
  .venv/bin/pip install --no-input --no-deps "$torch_requirement" >"$log" 2>&1 || return 1
  if [[ -f $(torch_folder)/lib/libtorch_cuda.so ]]; then
    runtime=$(torch_needs nvidia-cuda-runtime)
    cupti=$(torch_needs nvidia-cuda-cupti)
    .venv/bin/pip install --no-input --no-deps "$runtime" "$cupti" >>"$log" 2>&1 || return 1
  fi
  torch_is_there || { echo "the wheel has no C++ libraries" >>"$log"; return 1; }
}

if [[ ${FLAGSTONE_WITH_TORCH-AUTO} == OFF ]] || torch_is_there; then
  unset 'gave_up[torch]'
elif ! tried_before torch; then
  say "installing LibTorch ($torch_requirement) into .venv"
  if install_torch; then
    unset 'gave_up[torch]'
  else
    gave_up[torch]="$torch_requirement could not be installed: $(tail -n 1 build/setup-torch.log | cut -c1-200)"
  fi
fi

# --- What is left out -------------------------------------------------------------------------------------------------
if [[ -n ${gave_up[torch]-} ]]; then
  say "no LibTorch: examples/train_zero and torch tests are left out because ${gave_up[torch]}"
fi
if [[ -n ${gave_up[io_uring]-} ]]; then
  say "no liburing: the io_uring backends are left out because ${gave_up[io_uring]}"
fi

# Rewritten only when something changed: the build configures anew when the stamp is newer (scripts/build.sh).
outcome() {
  echo "$key"
  if torch_is_there; then echo "has torch"; fi
  for part in "${!gave_up[@]}"; do printf 'no %s\t%s\n' "$part" "${gave_up[$part]}"; done
}
if [[ ! -f $stamp ]] || [[ $(outcome) != "$(cat "$stamp")" ]]; then
  outcome >"$stamp"
fi
