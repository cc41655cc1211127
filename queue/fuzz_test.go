package queue

import (
	"encoding/json"
	"errors"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/root"
	"github.com/dblock-go/dblock/queue/internal/driver"
)

// FuzzTask: each task is a row that every engine can store, or ErrInvalid.
func FuzzTask(f *testing.F) {
	for _, name := range []string{"mail", "", "\x00", "\xff", "Grüße 🔒", string(make([]byte, 201))} {
		f.Add(name, name, name, name, []byte(`{"a":1}`), int64(time.Second), 1, 1)
	}
	f.Add("mail", "", "", "", []byte("\xff"), int64(-1), -1, 1<<30)
	f.Fuzz(func(t *testing.T, kind, queue, unique, group string, payload []byte, delay int64, attempts, most int) {
		task := Task{
			Kind: kind, Queue: queue, Unique: unique, Group: group, GroupLimit: most, Args: json.RawMessage(payload),
			Delay: time.Duration(delay), MaxAttempts: attempts,
		}
		in, err := task.insert(driver.ID{1}, JSON{})
		if err != nil {
			if !errors.Is(err, dblock.ErrInvalid) {
				t.Errorf("%+v: %v", task, err)
			}
			return
		}
		for _, name := range []string{in.Kind, in.Queue, in.Unique, in.Group} {
			if err := root.CheckText("name", name, 0, 255); err != nil {
				t.Errorf("accepted: %v", err)
			}
		}
		var back any
		if in.Kind == "" || in.Queue == "" || in.MaxAttempts < 1 || in.Delay < 0 || (JSON{}).Decode(in.Payload, &back) != nil {
			t.Errorf("%+v becomes %+v", task, in)
		}
	})
}

// FuzzTexts: names of jobs and states, and errors of handlers, are whatever people write.
func FuzzTexts(f *testing.F) {
	for _, s := range []string{"", "0190a2b4-7c3d-7e00-8000-000000000001", "ready", "\x00", "\xff", "--", "zz"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if again, bad := ParseID(id.String()); err != nil && !errors.Is(err, dblock.ErrInvalid) || bad != nil || again != id {
			t.Errorf("%q: %v, %v", s, err, bad)
		}
		var read ID
		if (read.UnmarshalText([]byte(s)) == nil) != (err == nil) || read != id {
			t.Errorf("%q is read as %v", s, read)
		}
		state, err := ParseJobState(s)
		if err != nil && !errors.Is(err, dblock.ErrInvalid) || err == nil && state.String() != s {
			t.Errorf("%q: %v, %v", s, state, err)
		}
		if text := failure(errors.New(s)); text == "" || !utf8.ValidString(text) || root.CheckText("failure", text, 1, 4*maxFailureBytes) != nil {
			t.Errorf("%q is kept as %q", s, text)
		}
	})
}
