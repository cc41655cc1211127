package session

import (
	"time"

	"github.com/dblock-go/dblock/internal/sqlerr"
)

// The server knows locks by numbers or hashes. For operators, the keys of locks are noted that are
// held for longer than a second. Shorter ones cost nothing.
const (
	notedAfter = time.Second
	noteEvery  = time.Second
	notedFor   = time.Hour
	maxNoted   = 1000 // in one statement
)

// keyNotes notes the keys of locks.
type keyNotes struct{ *slots }

// run notes keys until the Locker is closed.
func (n keyNotes) run() {
	for pause := noteEvery; ; {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-n.ending.Done():
			timer.Stop()
			return
		}
		keys, slots := n.unnoted()
		if len(keys) == 0 {
			continue
		}
		err := n.driver.Note(n.ending, keys)
		if n.driver.Classify(err) == sqlerr.NoSchema { // session locks need no tables
			n.o.Log.Info("dblock: the keys of session locks are not shown: the tables are missing", "error", err)
			return
		}
		if err != nil { // missing privileges, for example, which won't change soon
			pause = min(2*pause, time.Minute)
			continue
		}
		pause = noteEvery
		n.noted(slots)
	}
}

// unnoted are locks that are held for long, and were not noted within the last hour.
func (n keyNotes) unnoted() (keys map[ID]string, slots []*slot) {
	n.mu.Lock()
	defer n.mu.Unlock()
	keys = make(map[ID]string)
	for id, sl := range n.all {
		if len(keys) < maxNoted && sl.has && time.Since(sl.acquiredAt) > notedAfter && (sl.noted.IsZero() || time.Since(sl.noted) > notedFor) {
			keys[id] = sl.key
			slots = append(slots, sl)
		}
	}
	return keys, slots
}

func (n keyNotes) noted(slots []*slot) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, sl := range slots {
		sl.noted = time.Now()
	}
}
