#!/usr/bin/env bash
# The C++ libraries of the build in a folder, for a machine that has them not and no network.
#
#   scripts/fetch_deps.sh [FOLDER]     build/deps unless given
#
# Downloads Debian's packages with apt-get, as any user, and unpacks them; nothing is installed. Carry the
# folder along, and there configure with CMAKE_PREFIX_PATH=FOLDER/usr. Such a machine needs the same
# processor and a C library no older than here.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
. scripts/libraries.sh

folder=${1:-$PWD/build/deps}
case $folder in /*) ;; *) folder=$here/$folder ;; esac
# Debian's headers of fmt come with a library whose package has the version in its name.
mapfile -t packages < <(
  printf '%s\n' "${libraries[@]##*:}"
  apt-cache depends libfmt-dev | awk '$1 == "Depends:" && $2 ~ /^libfmt[0-9]/ {print $2}'
)
mkdir -p "$folder/packages"
(cd "$folder/packages" && apt-get -q download "${packages[@]}")
for package in "$folder"/packages/*.deb; do
  dpkg -x "$package" "$folder"
done
rm -r "$folder/packages" "$folder/usr/share/doc"
echo "fetch_deps: ${packages[*]} in $folder/usr"
