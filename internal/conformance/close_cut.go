package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

const members = "SELECT count(*) FROM dblock_member"

// aCloseCutAnywhere cuts the connection of each call that Close makes. The process leaves by another connection, at once.
func aCloseCutAnywhere(t *testing.T, d *desk) {
	for _, mode := range []faultconn.Mode{faultconn.CutBefore, faultconn.CutAfter} {
		for k, struck := 1, true; struck; k++ {
			dialer := &faultconn.Dialer{}
			q, done, err := d.e.OpenOn(t.Context(), d.dsn, dialer, queue.Options{TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{}, 1)
			handle(t, q, "note", func(context.Context, queue.Job[int]) error {
				ended <- struct{}{}
				return nil
			})
			stop := work(t, q, queue.WorkerOptions{})
			enqueue(t, q, queue.Task{Kind: "note", Args: 1})
			wait(t, ended, "the job")
			d.empty(t)
			works(t, "stop", stop())
			dialer.Arm(k, mode, nil)
			works(t, fmt.Sprintf("close, %v call %d", mode, k), q.Close(soon(t)))
			struck = dialer.Disarm()
			if n := d.count(t, members); n != 0 {
				t.Errorf("%v call %d: the process has closed its queue and not left", mode, k)
				d.exec(t, "DELETE FROM dblock_member")
			}
			done()
		}
	}
}

// aLeaseCloseCutAnywhere is the same of a Lease.
func aLeaseCloseCutAnywhere(t *testing.T, v *vault) {
	for _, mode := range []faultconn.Mode{faultconn.CutBefore, faultconn.CutAfter} {
		for k, struck := 1, true; struck; k++ {
			dialer := &faultconn.Dialer{}
			l, done, err := v.e.OpenOn(t.Context(), v.dsn, dialer, LeaseOptions{TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			works(t, "release", acquire(t, l, "key").Release(t.Context()))
			dialer.Arm(k, mode, nil)
			works(t, fmt.Sprintf("close, %v call %d", mode, k), l.Close(soon(t)))
			struck = dialer.Disarm()
			if n := v.count(t, members); n != 0 {
				t.Errorf("%v call %d: the process has closed its locks and not left", mode, k)
				v.exec(t, "DELETE FROM dblock_member")
			}
			done()
		}
	}
}
