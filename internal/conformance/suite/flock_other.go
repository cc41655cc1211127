//go:build !unix

package suite

import (
	"errors"
	"os"
)

// Flock is not supported here.
func Flock(*os.File, bool, bool) (bool, error) { return false, errors.ErrUnsupported }
