// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import "strings"

const (
	// missingMarker is what the script says when the host has no virsh.
	missingMarker = "caplv: virsh is missing"
	// setupMarker begins what the script says when it cannot set itself up.
	setupMarker = "caplv: cannot set up: "
	// sessionEnv leads to the one of an account's possible daemons that everybody agrees on.
	sessionEnv = "XDG_RUNTIME_DIR=/run/user/$(id -u)\nexport XDG_RUNTIME_DIR"
)

// script runs on the host. It starts virsh and gives it the lines of its input, but for lines "@ FILE BASE64", which it
// writes to a file that the next virsh command reads. Its text is constant: nothing of an object is ever read by a shell
// as code. The files lie on a memory file system where there is one, and vanish with the script. When virsh ends, it ends the
// script, which could not notice it while it waits for input; when the input ends, virsh ends. The account's settings of
// readline, through which virsh reads, and of libvirt's logging do not apply.
const script = `LC_ALL=C
TERM=dumb
INPUTRC=/dev/null
export LC_ALL TERM INPUTRC
unset VIRSH_DEBUG VIRSH_LOG_FILE LIBVIRT_DEBUG LIBVIRT_LOG_FILTERS LIBVIRT_LOG_OUTPUTS
umask 077
command -v virsh >/dev/null 2>&1 || { echo "` + missingMarker + `" >&2; exit 127; }
@ENV@
d=
for b in "${XDG_RUNTIME_DIR-}" /dev/shm /tmp; do
[ -n "$b" ] && d=$(mktemp -d "$b/caplv.XXXXXXXX" 2>/dev/null) && break
done
[ -n "$d" ] || { echo "` + setupMarker + `no place for temporary files" >&2; exit 1; }
trap "rm -rf \"\$d\"" EXIT
trap "exit 1" HUP INT TERM
@CACHE@
cd "$d" && mkfifo c || { echo "` + setupMarker + `no pipe" >&2; exit 1; }
m=$$
{ virsh -q -c @URI@; rm -rf "$d"; kill -KILL $m; } <c &
exec 3>c
rm c
while IFS= read -r l; do
case $l in
"@ "*) l=${l#@ }; printf %s "${l#* }" | base64 -d >"${l%% *}" || exit 1 ;;
*) printf "%s\n" "$l" >&3 || exit 1 ;;
esac
done
exec 3>&-
wait
`

// commandFor is the remote command: the script in single quotes, which it does not contain itself.
func commandFor(mode Mode, uri string) string {
	// virsh writes the history of its input when it ends: into the temporary directory, not into the account's home.
	// A session daemon that virsh starts would inherit the directory, so there the history is only kept empty.
	env, cache := "", "XDG_CACHE_HOME=$d\nexport XDG_CACHE_HOME"
	if mode == ModeSession {
		env = sessionEnv
		cache = "VIRSH_HISTSIZE=0\nexport VIRSH_HISTSIZE"
	}
	if uri == "" {
		uri = "qemu:///" + string(mode)
	}
	text := strings.NewReplacer("@ENV@", env, "@CACHE@", cache, "@URI@", uri).Replace(script)
	return "exec sh -c '" + text + "' caplv"
}
