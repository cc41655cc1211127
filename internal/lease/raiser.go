package lease

import (
	"fmt"

	"github.com/dblock-go/dblock"
)

// Raiser is under which handle a fence is raised. Those who hold a key shared have one token, and raise it together.
func Raiser(f dblock.Fence) (Handle, error) {
	switch f.Mode {
	case dblock.ModeShared:
		return Handle{}, nil
	case dblock.ModePermit:
		return Handle{}, fmt.Errorf("%w: permits of %q are held by several at once, so that the latest token means nothing: use Guard",
			dblock.ErrUnsupported, f.Key)
	default:
		return f.Handle, nil
	}
}
