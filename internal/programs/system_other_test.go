//go:build !unix

package programs

import (
	"errors"
	"os"
)

// flock is not supported here.
func flock(*os.File, bool, bool) (bool, error) { return false, errors.ErrUnsupported }

func quit(*process) {}
