package queue

import (
	"context"
	"testing"

	"github.com/dblock-go/dblock/internal/member"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// raw is a Codec that hands out the bytes that it is given.
type raw struct{}

func (raw) Encode(args any) ([]byte, error) { return args.([]byte), nil }

func (raw) Decode(data []byte, into any) error {
	*into.(*[]byte) = data
	return nil
}

// TestAPayloadIsTheHandlersOwn: a handler that runs again gets what it got at first, though it has
// changed that in place.
func TestAPayloadIsTheHandlersOwn(t *testing.T) {
	t.Parallel()
	r := &attempt{h: &handler{codec: raw{}, begin: func(context.Context, member.ID, *driver.Position) (any, driver.HandlerTx, driver.Beginning, error) {
		panic("it has begun")
	}}, job: &claimedJob{Job: driver.Job{Payload: []byte("secret")}}}
	for range 2 {
		job, err := decoded[[]byte](r)
		if err != nil || string(job.Args) != "secret" {
			t.Fatalf("%q, %v", job.Args, err)
		}
		clear(job.Args)
	}
}

// TestLanesNameKeys: what an error shows of a key that stayed locked names it.
func TestLanesNameKeys(t *testing.T) {
	t.Parallel()
	jobs := []driver.Insert{{Queue: "q", Group: "g", Unique: "u"}}
	if _, lanes := newKeyedCall(jobs); len(lanes) != 2 || lanes[0] != `group "g" of queue "q"` || lanes[1] != `unique key "u" of queue "q"` {
		t.Errorf("%q", lanes)
	}
}
