# Sourced by scripts/setup: ROCm's Origami, the model of AMD GPUs' matrix kernels that Refold prefers for them.
#
# PyPI has it as source only. Building it takes a C++ compiler, Python's headers and HIP's host library (no GPU, no
# driver); Debian and Ubuntu package them all. Without Origami Refold still works, with a lesser model for AMD GPUs.

has_origami() { "$VENV/bin/python" -c 'import origami' 2>/dev/null; }

# The Debian packages whose files are not here, one a line.
missing_packages() {
  local rocm=${ROCM_PATH:-/opt/rocm} python_h
  python_h=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
  command -v c++ >/dev/null || command -v g++ >/dev/null || echo g++
  [ -e "$python_h" ] || "$VENV/bin/python" -c 'import sys; print("python%d.%d-dev" % sys.version_info[:2])'
  # CMake's hip package looks for the compiler driver, though nothing is compiled for a GPU.
  command -v hipcc >/dev/null || [ -x "$rocm/bin/hipcc" ] || echo hipcc
  compgen -G '/usr/lib/*/cmake/hip/hip-config.cmake' >/dev/null ||
    [ -e "$rocm/lib/cmake/hip/hip-config.cmake" ] || echo libamdhip64-dev
  [ -d /usr/share/rocm/cmake ] || [ -d "$rocm/share/rocm/cmake" ] || echo rocm-cmake
}

# Prints the words that run a command as root without a question, or fails.
as_root() {
  if [ "$(id -u)" = 0 ]; then echo env; elif sudo -n true 2>/dev/null; then echo "sudo -n env"; else return 1; fi
}

can_install() { command -v apt-get >/dev/null && as_root >/dev/null; }

install_packages() {
  local root apt="apt-get -q -y -o DPkg::Lock::Timeout=120"
  root=$(as_root)
  say "installing Debian packages for ROCm's Origami: $*"
  { $root DEBIAN_FRONTEND=noninteractive $apt update &&
    $root DEBIAN_FRONTEND=noninteractive $apt install --no-install-recommends "$@"; } >"$origami_log" 2>&1 </dev/null
}

build_origami() {
  local rocm=${ROCM_PATH:-/opt/rocm} nothing
  nothing=$(realpath -s "$VENV")/origami-fetches-nothing
  mkdir -p "$nothing"
  say "building ROCm's Origami (about a minute)"
  # Its build would clone nanobind and rocm-cmake; pip and the system have them, so both clones are pointed at an
  # empty folder. The policy version lets CMake 4 read Debian's older hip package.
  CMAKE_PREFIX_PATH=$rocm \
  CMAKE_ARGS="-DCMAKE_POLICY_VERSION_MINIMUM=3.5 '-DFETCHCONTENT_SOURCE_DIR_NANOBIND=$nothing' \
    '-DFETCHCONTENT_SOURCE_DIR_ROCM-CMAKE=$nothing' '-DCMAKE_MODULE_PATH=/usr/share/rocm/cmake;$rocm/share/rocm/cmake'" \
    "$VENV/bin/python" -m pip install --constraint constraints.txt --build-constraint build-constraints.txt \
    rocm-origami >"$origami_log" 2>&1
}

# Installs $missing and builds; sets $why where that failed.
try_origami() {
  if [ -n "$missing" ] && ! can_install; then
    why="missing here, and only root can install it: $missing"
  elif [ -n "$missing" ] && ! install_packages $missing; then
    why="apt-get could not install $missing; $origami_log says why"
  elif ! build_origami || ! has_origami; then
    why="it did not build; $origami_log says why"
  fi
}

explain_no_origami() {
  say "ROCm's Origami is not installed: $1"
  say "  Refold works without it: matrix products of AMD GPUs are then timed by Refold's own tile model, and every"
  say "  run and recipe records that. NVIDIA GPUs are not affected."
  if [ -n "$missing" ]; then
    say "  To have Origami: apt-get install --no-install-recommends $missing   # as root, Debian's names"
    say "  and then: make setup"
  fi
}

# Installs Origami where that can be done, and says so where not: in full when it tried, in a line afterwards.
# Fails only under REFOLD_REQUIRE_ORIGAMI=1.
provide_origami() {
  local missing state why="" tried=$VENV/.refold-origami-tried
  origami_log=$VENV/origami.log
  if has_origami; then return 0; fi
  if [ "${REFOLD_REQUIRE_ORIGAMI:-0}" != 1 ] && [ "${REFOLD_SKIP_ORIGAMI:-0}" = 1 ]; then return 0; fi
  missing=$(missing_packages | xargs)
  state="$(cat constraints.txt build-constraints.txt scripts/origami.sh | sha256sum) $missing"
  if [ -z "$retry_origami" ] && [ "$(cat "$tried" 2>/dev/null)" = "$state" ]; then
    say "without ROCm's Origami, as before (\`make setup\` tries again and says what that means)"
  else
    try_origami
    if [ -z "$why" ]; then return 0; fi
    echo "$state" >"$tried"
    explain_no_origami "$why"
  fi
  [ "${REFOLD_REQUIRE_ORIGAMI:-0}" != 1 ] || fail "REFOLD_REQUIRE_ORIGAMI=1, but Origami cannot be imported"
}
