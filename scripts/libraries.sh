# Sourced: the C++ libraries that a build needs, as headers and the Debian packages that have them.
libraries=(gtest/gtest.h:libgtest-dev gmock/gmock.h:libgmock-dev fmt/format.h:libfmt-dev
  nlohmann/json.hpp:nlohmann-json3-dev CLI/CLI.hpp:libcli11-dev)

has_header() { printf '#include <%s>\n' "$1" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1; }

# Debian packages of the libraries that the compiler does not find, one a line.
missing_libraries() {
  local library
  for library in "${libraries[@]}"; do
    has_header "${library%%:*}" || echo "${library##*:}"
  done
}
