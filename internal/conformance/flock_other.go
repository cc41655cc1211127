//go:build !unix

package conformance

import (
	"errors"
	"os"
)

// flock is not supported here.
func flock(*os.File, bool, bool) (bool, error) { return false, errors.ErrUnsupported }
