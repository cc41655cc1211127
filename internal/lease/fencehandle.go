package lease

import (
	"fmt"

	"github.com/dblock-go/dblock"
)

// FenceHandle returns the handle under which a fence advances. Shared holders have one token, and
// advance the fence together.
func FenceHandle(f dblock.Fence) (Handle, error) {
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
