//go:build !unix

package faultmatrix

import (
	"errors"
	"os"
	"time"
)

// Signals and a clock that processes share are Unix's: the matrix runs there alone.

func suspend(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }

func interrupt(int) error { return errors.ErrUnsupported }

func terminate(int) error { return errors.ErrUnsupported }

func kill(int) error { return errors.ErrUnsupported }

func runs(int) bool { return false }

var begun = time.Now()

func uptime() time.Duration { return time.Since(begun) }
