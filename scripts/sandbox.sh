# Sourced by scripts/setup: bubblewrap, the jail in which the code of a language model runs (`agent.driver: rlm`).
#
# It is a Debian package of one small program. Without it Refold works, and refuses that driver by name.

# Installs it where that can be done without a question, and says so where not: once, and when asked to try again.
provide_sandbox() {
  local root log=$VENV/sandbox.log tried=$VENV/.refold-sandbox-tried
  local apt="apt-get -q -y -o DPkg::Lock::Timeout=120"
  if [ "${REFOLD_SKIP_SANDBOX:-0}" = 1 ] || command -v bwrap >/dev/null; then return 0; fi
  if [ -z "$retry_origami" ] && [ -e "$tried" ]; then return 0; fi
  if can_install; then
    root=$(as_root)
    say "installing Debian's bubblewrap"
    { $root DEBIAN_FRONTEND=noninteractive $apt update &&
      $root DEBIAN_FRONTEND=noninteractive $apt install --no-install-recommends bubblewrap; } >"$log" 2>&1 </dev/null || true
  fi
  if command -v bwrap >/dev/null; then return 0; fi
  : >"$tried"
  say "bubblewrap is not installed: agent.driver rlm will be refused, all else works"
  say "  To have it: apt-get install bubblewrap   # as root"
}
