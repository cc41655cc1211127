//go:build !unix

package suite

import (
	"errors"
	"os"
	"time"
)

// Suspend needs signals, which this operating system does not have.
func Suspend(*os.Process) error { return errors.ErrUnsupported }

func Resume(*os.Process) error { return errors.ErrUnsupported }

var begun = time.Now()

// Uptime is this process's own clock: no test suspends a process here, so none compares it with
// another's.
func Uptime() time.Duration { return time.Since(begun) }
