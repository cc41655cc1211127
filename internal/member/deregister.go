package member

import (
	"context"
	"time"
)

// grace is how long Leave waits for leave after the end of its context.
const grace = time.Second

// AwaitDeregister runs leave. If the server does not answer, leave goes on in the background: Leave
// waits for it until a second after the end of ctx, and then returns false.
func AwaitDeregister(ctx context.Context, leave func() error) (done bool, err error) {
	left := make(chan error, 1)
	go func() { left <- leave() }()
	late := make(chan struct{})
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { close(late) }) })()
	select {
	case err := <-left:
		return true, err
	case <-late:
		return false, nil
	}
}
