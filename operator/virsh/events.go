// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"context"
	"strings"
	"sync"
)

// eventScript runs on the host. virsh takes the shell's place and its process number, and does not look at its input; a process
// beside it does, and ends virsh when the input ends, so that nothing stays on the host without the connection. Asking for the
// URI connects and answers, which the registration of events does not.
const eventScript = `LC_ALL=C
export LC_ALL
unset VIRSH_DEBUG VIRSH_LOG_FILE LIBVIRT_DEBUG LIBVIRT_LOG_FILTERS LIBVIRT_LOG_OUTPUTS
command -v virsh >/dev/null 2>&1 || { echo "` + missingMarker + `" >&2; exit 127; }
@ENV@
exec 3<&0
{ cat >/dev/null; kill "$$"; } <&3 >/dev/null 2>&1 &
exec virsh -q -c @URI@ "uri; event --loop --all --timestamp" </dev/null 3<&-
`

// eventCommandFor is the remote command of a stream of events.
func eventCommandFor(mode Mode, uri string) string {
	env := ""
	if mode == ModeSession {
		env = sessionEnv
	}
	if uri == "" {
		uri = "qemu:///" + string(mode)
	}
	return "exec sh -c '" + strings.NewReplacer("@ENV@", env, "@URI@", uri).Replace(eventScript) + "' caplv"
}

// Events is the stream of what happens to the domains of a host. It is a virsh of its own, since one that waits for events does
// nothing else.
type Events struct {
	p    *process
	once sync.Once
}

// OpenEvents starts a stream. It returns when virsh has reached the daemon; what happens within the next moment can be
// missed. ctx bounds the start alone. Errors are of type *Error or come from the transport.
func OpenEvents(ctx context.Context, start Starter, mode Mode, options Options) (*Events, error) {
	remote, err := start(ctx, eventCommandFor(mode, options.URI))
	if err != nil {
		return nil, err
	}
	e := &Events{p: &process{remote: remote, stdout: newStream(remote.Stdout()), stderr: newStream(remote.Stderr())}}
	for {
		line, err := e.p.stdout.until(ctx, "\n")
		if err != nil {
			err = e.p.explain(ctx, err)
			e.Close()
			return nil, err
		}
		// What the account's login says may come first.
		if strings.Contains(line, "://") {
			return e, nil
		}
	}
}

// Next waits for the next event. An error says why the stream has ended, or that ctx has.
func (e *Events) Next(ctx context.Context) (Event, error) {
	for {
		line, err := e.p.stdout.until(ctx, "\n")
		if err != nil {
			return Event{}, e.p.explain(ctx, err)
		}
		if event, ok := parseEvent(line); ok {
			return event, nil
		}
	}
}

// Close ends the stream and its process on the host.
func (e *Events) Close() { e.once.Do(e.p.close) }
