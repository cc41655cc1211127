package queue

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dblock-go/dblock"
)

func TestIDsGrowAndAreUUIDs(t *testing.T) {
	t.Parallel()
	var g ids
	last := g.next(1)[0]
	before := time.Now().Add(-time.Minute).UnixMilli()
	for range 1000 {
		for _, id := range g.next(7) {
			if bytes.Compare(id[:], last[:]) <= 0 {
				t.Fatalf("%v comes after %v", ID(id), ID(last))
			}
			if id[6]>>4 != 7 || id[8]>>6 != 2 {
				t.Fatalf("%v is no UUID of version 7", ID(id))
			}
			ms := int64(id[0])<<40 | int64(id[1])<<32 | int64(id[2])<<24 | int64(id[3])<<16 | int64(id[4])<<8 | int64(id[5])
			if ms < before || ms > before+2*time.Minute.Milliseconds() {
				t.Fatalf("%v is of %v", ID(id), time.UnixMilli(ms))
			}
			last = id
		}
	}
	if other := new(ids).next(1)[0]; bytes.Equal(other[8:], last[8:]) {
		t.Error("two processes count alike")
	}
}

// oneMiB encodes every job into the same bytes.
type oneMiB []byte

func (c oneMiB) Encode(any) ([]byte, error) { return c, nil }
func (oneMiB) Decode([]byte, any) error     { return nil }

// TestACallHasABound: tasks whose payloads no statement can carry together are refused before they
// are sent.
func TestACallHasABound(t *testing.T) {
	t.Parallel()
	q := &Queue{o: Options{Codec: make(oneMiB, MaxPayloadBytes)}}
	q.enqueuer = newEnqueuer(q)
	tasks := make([]Task, MaxTasks)
	for i := range tasks {
		tasks[i] = Task{Kind: "k", Unique: strconv.Itoa(i)}
	}
	const most = MaxTasksBytes / MaxPayloadBytes
	if jobs, _, err := q.enqueuer.prepare(tasks[:most]); len(jobs) != most || err != nil {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
	for _, n := range []int{most + 1, MaxTasks} {
		_, err := q.EnqueueMany(t.Context(), tasks[:n])
		if !errors.Is(err, dblock.ErrInvalid) || !strings.Contains(err.Error(), strconv.Itoa(MaxTasksBytes)) {
			t.Errorf("%d tasks of 1 MiB: %v", n, err)
		}
	}
}

func TestExponentialGrowsToItsBound(t *testing.T) {
	t.Parallel()
	backoff := Exponential(time.Second, time.Hour)
	for attempt, want := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 13: time.Hour, 40: time.Hour, 100: time.Hour, math.MaxInt: time.Hour,
	} {
		for range 100 {
			if got := backoff(attempt, nil); got < want*3/4 || got > want*5/4 {
				t.Fatalf("attempt %d: %v", attempt, got)
			}
		}
	}
}

func TestFailuresAreTextThatCanBeKept(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "fine", "a\x00b", "\xff", strings.Repeat("é", maxFailureBytes), strings.Repeat("\xff\x00", maxFailureBytes)} {
		got := failure(errors.New(text))
		if got == "" || !utf8.ValidString(got) || strings.Contains(got, "\x00") || len(got) > 3*maxFailureBytes {
			t.Errorf("%.10q is kept as %.10q, of %d bytes", text, got, len(got))
		}
	}
}

func TestRateForgets(t *testing.T) {
	t.Parallel()
	var r rate
	now := time.Now()
	r.since = now
	for range 100 {
		now = now.Add(20 * time.Millisecond)
		r.note(now, 200)
	}
	in := func() int { return r.in(now, 100*time.Millisecond, 250*time.Millisecond) }
	if n := in(); n < 950 || n > 1050 {
		t.Errorf("%d in 100 ms, of 10,000 a second", n)
	}
	now = now.Add(250 * time.Millisecond)
	if n := in(); n < 950 {
		t.Errorf("%d in 100 ms, after a short pause", n)
	}
	now = now.Add(time.Millisecond)
	if n := in(); n != 0 {
		t.Errorf("%d in 100 ms, though none were confirmed", n)
	}
	for range 10 {
		now = now.Add(time.Hour)
		r.note(now, 1)
	}
	if n := in(); n > 5 {
		t.Errorf("%d in 100 ms, after a long pause", n)
	}
}
