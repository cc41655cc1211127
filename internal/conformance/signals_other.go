//go:build !unix

package conformance

import (
	"errors"
	"os"
)

// suspend needs signals, which this operating system does not have.
func suspend(*os.Process) error { return errors.ErrUnsupported }

func resume(*os.Process) error { return errors.ErrUnsupported }
