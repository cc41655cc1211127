package session

import (
	"time"

	"github.com/dblock-go/dblock/internal/sqlerr"
)

// The server knows locks by numbers or hashes. Which keys they stand for is noted for people, of those locks alone that are
// held for longer than people take to look: it costs the short ones nothing.
const (
	notedAfter = time.Second
	noteEvery  = time.Second
	notedFor   = time.Hour
	mostNoted  = 1000 // in one statement
)

// noteKeys notes the keys of locks that are held for long, until the Locker is closed.
func (l *Locker) noteKeys() {
	for pause := noteEvery; ; {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-l.ending.Done():
			timer.Stop()
			return
		}
		keys, slots := l.unnoted()
		if len(keys) == 0 {
			continue
		}
		err := l.engine.Note(l.ending, keys)
		if l.engine.Classify(err) == sqlerr.NoSchema { // session locks need no tables
			l.o.Log.Info("dblock: the keys of session locks are not shown: the tables are missing", "error", err)
			return
		}
		if err != nil { // for want of rights, say, which won't come soon
			pause = min(2*pause, time.Minute)
			continue
		}
		pause = noteEvery
		l.noted(slots)
	}
}

// unnoted are locks that are held for long, and were not noted, or long ago.
func (l *Locker) unnoted() (keys map[ID]string, slots []*slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys = make(map[ID]string)
	for id, sl := range l.slots {
		if len(keys) < mostNoted && sl.has && time.Since(sl.began) > notedAfter && (sl.noted.IsZero() || time.Since(sl.noted) > notedFor) {
			keys[id] = sl.key
			slots = append(slots, sl)
		}
	}
	return keys, slots
}

func (l *Locker) noted(slots []*slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, sl := range slots {
		sl.noted = time.Now()
	}
}
