#!/usr/bin/env bash
# Installs what Gambeson's own commands need and is missing; quick when nothing is.
#   tools/bootstrap.sh build            a C compiler and Rust
#   tools/bootstrap.sh wheel            + what builds the Python package
#   tools/bootstrap.sh demo             + one virtual environment with MPICH, one with tools
#   tools/bootstrap.sh test             + Open MPI, Intel MPI, the distribution's Open MPI, Fortran, and who takes the package's tables, and who compiles and checks C, and a key server
#   tools/bootstrap.sh long             + GlusterFS, over which the long tests run
#   tools/bootstrap.sh conformance      + parallel HDF5 for MPICH and Open MPI and its tools (examples/patients needs them, too), and PnetCDF with what builds its tests
# Debian packages are installed with apt-get when run as root; otherwise their names are printed and the script stops.
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:-test}

build_packages=(gcc libc6-dev make)
demo_packages=(python3 python3-venv iproute2 util-linux)
test_packages=(slurmctld slurmd slurm-client munge libslurm-dev libmunge-dev libpmi2-0 krb5-kdc krb5-admin-server krb5-user gfortran g++ pkg-config openssl openmpi-bin libopenmpi-dev libmpich-dev libcoarrays-openmpi-dev libfabric-dev tcpdump procps nftables chromium libnss3-tools softhsm2 opensc swtpm tpm2-abrmd tpm2-tools libtss2-tcti-swtpm0 libtss2-tcti-tabrmd0 libtpm2-pkcs11-1 libtpm2-pkcs11-tools dbus-daemon)
long_packages=(glusterfs-server glusterfs-client)
conformance_packages=(libhdf5-mpich-dev libhdf5-openmpi-dev hdf5-tools libpnetcdf-dev autoconf automake libtool m4)
case $purpose in
build) packages=("${build_packages[@]}") environments=() ;;
wheel) packages=("${build_packages[@]}" python3 python3-venv) environments=(wheel) ;;
demo) packages=("${build_packages[@]}" "${demo_packages[@]}") environments=(tools mpich) ;;
test) packages=("${build_packages[@]}" "${demo_packages[@]}" "${test_packages[@]}") environments=(tools mpich openmpi impi debian wheel python kmip) ;;
long) packages=("${build_packages[@]}" "${demo_packages[@]}" "${test_packages[@]}" "${long_packages[@]}") environments=(tools mpich openmpi impi debian wheel python kmip) ;;
conformance) packages=("${build_packages[@]}" "${demo_packages[@]}" "${test_packages[@]}" "${conformance_packages[@]}") environments=(tools mpich openmpi impi debian) ;;
*) echo "usage: tools/bootstrap.sh build|wheel|demo|test|long|conformance" >&2; exit 2 ;;
esac

# A package counts as present when dpkg says so; on a machine without dpkg the user is trusted.
missing_packages() {
  command -v dpkg-query >/dev/null || return 0
  local package
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || echo "$package"
  done
}
mapfile -t missing < <(missing_packages)
# Python from elsewhere than the distribution serves as well.
if command -v python3 >/dev/null && python3 -c 'import venv, ensurepip' 2>/dev/null; then
  mapfile -t missing < <(printf '%s\n' "${missing[@]}" | grep -vxE 'python3|python3-venv' || true)
fi
[[ ${missing[*]:-} ]] || missing=()
if ((${#missing[@]})); then
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "bootstrap: installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
      { apt-get update -q >/dev/null && apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null; }
  else
    echo "bootstrap: these Debian packages are missing: ${missing[*]}. Install them as root (apt-get install ${missing[*]}) and run this again." >&2
    exit 1
  fi
fi

channel=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)
if ! command -v cargo >/dev/null; then
  echo "bootstrap: cargo was not found. Install Rust $channel (rustup reads rust-toolchain.toml) and run this again." >&2
  exit 1
fi
version=$(rustc --version 2>/dev/null | awk '{print $2}') || true
if [[ -z $version || $(printf '%s\n' "$channel" "${version%%-*}" | sort -V | head -1) != "$channel" ]]; then
  echo "bootstrap: Rust $channel or newer is needed, this is ${version:-none that runs}. Install it (rustup toolchain install $channel) and run this again." >&2
  exit 1
fi

# An environment is rebuilt when its requirements or the Python that made it change.
environment() {
  local name=$1 folder=build/venv-$1 wanted stamp
  stamp=$folder/.requirements
  wanted=$(python3 -V; cat "tools/requirements/$name.txt")
  [[ -f $stamp && $(cat "$stamp") == "$wanted" ]] && "$folder/bin/python" -c '' 2>/dev/null && return
  echo "bootstrap: making $folder"
  rm -rf "$folder"
  python3 -m venv "$folder"
  "$folder/bin/python" -m pip install -q --disable-pip-version-check --only-binary :all: -r "tools/requirements/$name.txt"
  printf '%s\n' "$wanted" >"$stamp"
}
mkdir -p build
for name in "${environments[@]}"; do environment "$name"; done
