//go:build !unix

package conformance

import (
	"errors"
	"os"
	"time"
)

// suspend needs signals, which this operating system does not have.
func suspend(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }

var begun = time.Now()

// uptime is this process's own clock: no test suspends a process here, so none compares it with another's.
func uptime() time.Duration { return time.Since(begun) }
