package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dblock-go/dblock"
)

// CountOn has a process hold a lock until it is lost, say when it counted on it last and when its context had ended, and acquire
// it again. It ends with the test's pipe.
func CountOn(ctx context.Context, l dblock.Locker, key string) error {
	go func() {
		WaitToGoOn()
		os.Exit(0)
	}()
	lock, err := acquireOnceReachable(ctx, l, key)
	if err != nil {
		return err
	}
	ended := make(chan time.Duration, 1)
	go func() {
		<-lock.Context().Done()
		ended <- Uptime()
	}()
	var last time.Duration
	for {
		now := Uptime()
		if lock.Context().Err() != nil || !time.Now().Before(lock.ValidUntil()) {
			break
		}
		last = now
		time.Sleep(time.Millisecond)
	}
	fmt.Println("counted on until", int64(last), "ended at", int64(<-ended))
	fmt.Println(context.Cause(lock.Context()))
	if _, err := acquireOnceReachable(ctx, l, key); err != nil {
		return err
	}
	select {}
}

// acquireOnceReachable waits for the server as well, and says when it has the lock.
func acquireOnceReachable(ctx context.Context, l dblock.Locker, key string) (*dblock.Lock, error) {
	for {
		lock, err := l.Acquire(ctx, key)
		switch {
		case err == nil:
			fmt.Println("held since", int64(Uptime()))
			return lock, nil
		case !errors.Is(err, dblock.ErrUnavailable) && !errors.Is(err, dblock.ErrOutcomeUnknown) && !errors.Is(err, dblock.ErrBusy):
			return nil, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
