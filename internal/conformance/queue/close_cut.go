package queue

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dblock-go/dblock/internal/conformance/suite"
	"github.com/dblock-go/dblock/internal/faultconn"
	"github.com/dblock-go/dblock/queue"
)

// aCloseCutAnywhere cuts the connection of each call that Close makes. The process leaves by another connection, at once.
func aCloseCutAnywhere(t *testing.T, d *env) {
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
			require.NoError(t, stop(), "stop")
			dialer.Arm(k, mode, nil)
			require.NoError(t, q.Close(suite.Soon(t)), fmt.Sprintf("close, %v call %d", mode, k))
			struck = dialer.Disarm()
			if n := d.count(t, suite.Members); n != 0 {
				t.Errorf("%v call %d: the process has closed its queue and not left", mode, k)
				d.exec(t, "DELETE FROM dblock_member")
			}
			done()
		}
	}
}
