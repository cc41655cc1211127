package guardian

import (
	"io"
	"time"
)

// Command is what Run runs.
type Command struct {
	Args           []string // the program and its arguments
	Env            []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	// ValidUntil is until when the command may run. It is asked every 100 ms, and may move. Then
	// SIGTERM is sent to all processes of the command, and SIGKILL after Slack.
	ValidUntil func() time.Time
	Slack      time.Duration

	Grace time.Duration // between SIGTERM and SIGKILL if the context ends

	// Left is called once if n processes still run 2 s after the command itself has ended. pids are
	// the first 100 of them; none if the system does not list them. May be nil.
	Left func(n int, pids []int)
}
